"""Writes the demo's training prompts: every topic in some of the forms.

    python examples/make_prompts.py > examples/prompts.jsonl

The held-out prompts are written by hand, on other topics and in other forms (a test holds the two apart).
"""

from __future__ import annotations

import hashlib
import json
import sys

FORMS = (
    "What is {}?",
    "Explain {} to a ten-year-old.",
    "Write a short story about {}.",
    "Give me five facts about {}.",
    "Why does {} matter?",
    "Describe {} in three sentences.",
    "How would you teach a class about {}?",
    "Write a poem about {}.",
    "List the advantages and disadvantages of {}.",
    "I have to give a talk about {}. What should I say first?",
    "Tell me something surprising about {}.",
    "What are the most common mistakes people make with {}?",
    "Summarize the history of {}.",
    "Write an e-mail to a friend about {}.",
    "What should a beginner know about {}?",
    "Can you compare {} with something similar?",
    "Write a dialogue between two people who disagree about {}.",
    "What will {} look like in fifty years?",
    "Make a list of questions for a quiz about {}.",
    "How has {} changed the way people live?",
    "Write a product description that has to do with {}.",
    "Give step-by-step advice to someone who is interested in {}.",
    "What do experts say about {}?",
    "Write a diary entry in which {} plays a part.",
)
TOPICS = (
    *("photosynthesis", "the water cycle", "volcanoes", "earthquakes", "the moon", "black holes", "gravity"),
    *("magnets", "electricity", "the human heart", "sleep", "vaccines", "bacteria", "dinosaurs", "whales"),
    *("honey bees", "penguins", "elephants", "migrating birds", "coral reefs", "rain forests", "deserts", "glaciers"),
    *("rivers", "the Sahara", "ancient Egypt", "the Roman Empire", "the Silk Road", "the Middle Ages"),
    *("the Renaissance", "the printing press", "the Industrial Revolution", "the French Revolution"),
    *("the space race", "the Olympic Games", "the Great Wall of China", "chess", "football", "swimming", "yoga"),
    *("long-distance running", "cycling to work", "mountain climbing", "fishing", "baking bread", "cooking rice"),
    *("coffee", "tea", "chocolate", "cheese", "olive oil", "spices", "street food", "vegetable gardens"),
    *("house plants", "composting", "solar power", "wind turbines", "electric cars", "public transport", "bridges"),
    *("skyscrapers", "lighthouses", "trains", "airplanes", "sailing ships", "bicycles", "clocks", "maps"),
    *("the piano", "jazz", "opera", "folk songs", "the violin", "ballet", "theater", "photography", "oil painting"),
    *("pottery", "knitting", "origami", "poetry", "fairy tales", "detective novels", "libraries", "newspapers"),
    *("radio", "computers", "the internet", "Python programming", "databases", "search engines", "robots"),
    *("machine learning", "passwords", "video games", "smartphones", "artificial intelligence"),
    *("open-source software", "spreadsheets", "money", "banks", "inflation", "budgets", "taxes", "insurance"),
    *("small businesses", "marketing", "job interviews", "friendship", "honesty", "patience", "courage", "team work"),
    *("leadership", "stress", "habits", "memory", "fractions", "prime numbers", "geometry", "statistics"),
    *("probability", "algebra", "the number zero", "triangles", "democracy", "elections", "human rights"),
    *("the United Nations", "trade", "cities", "villages", "immigration", "weather forecasts", "climate change"),
    *("recycling", "clean water", "forest fires", "hurricanes", "snow", "rainbows", "dogs", "cats", "horses"),
    *("spiders", "sharks", "butterflies", "owls", "wolves", "ants", "turtles", "Paris", "Japan", "Brazil", "India"),
    *("Canada", "Italy", "Kenya", "Australia", "Mexico", "Iceland"),
)
FORMS_OF_A_TOPIC = 8


def main() -> None:
    """Print one prompt a line, in the order of topics."""
    for topic in TOPICS:
        order = sorted(FORMS, key=lambda form: hashlib.sha256(f"{topic}|{form}".encode()).digest())
        for number, form in enumerate(order[:FORMS_OF_A_TOPIC]):
            name = topic.lower().replace(" ", "-")
            row = {"id": f"{name}-{number}", "messages": [{"role": "user", "content": form.format(topic)}]}
            sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
