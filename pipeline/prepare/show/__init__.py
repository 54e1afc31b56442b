"""Shows what prepare wrote: samples on the terminal, and a page of statistics and samples.

In: the finished output folder of prepare and the target's tokenizer. Out: text, and `samples.html` in that folder.
"""
