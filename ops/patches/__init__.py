"""Patches an installed package, strictly: exact upstream, exact places, exact result, all files or none.

A series is a folder `patches/<package>-<version>/` with the list `series`, its `NNNN-what-it-fixes.patch`
files (a DEP-3 header, a line `---`, a unified diff) and `files.sha256`. What each module is for:

    apply.apply          apply a series to a site-packages folder
    status.status        what state an installation is in
    verify.verify        raise unless the series is applied, whole and true
    series.series_digest name and sha256 of each patch
    new.new              the next patch, from an edited copy
    refresh.refresh      regenerate the diffs and files.sha256
    rebase.rebase        carry a series over to another upstream version
    without.without      the package with the series but for one patch
    without.materialise  the package with the whole series
    trees.upstream_from_wheel

Everything needs only the standard library; the developer's commands (new, refresh, rebase, without) also run git.
"""
