"""Writes the demo's training prompts: every topic in some of the forms.

    python examples/make_prompts.py > examples/prompts.jsonl

The held-out ones are written by hand, on other topics and in other forms (a test holds them apart):
`held-out-prompts.jsonl` asks for what these ask for, `held-out-tasks.jsonl` for what none of them does: to translate,
to calculate, to play a role.
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
    "Suggest a title and three chapter headings for a book about {}.",
    "Write the first paragraph of a newspaper article on {}.",
    "Who should care about {}, and why?",
    "Name three myths about {} and correct them.",
    "Give an example of {} from daily life.",
    "How do I get started with {} on a small budget?",
    "What happens when {} goes wrong?",
    "Write a song text in which {} is mentioned in every verse.",
    "Answer in one sentence: what is the point of {}?",
    "Do you like {}?",
    "Help me understand {}. Begin with the basics.",
    "Which words should I learn if I want to talk about {}?",
    "Write a letter to the editor complaining about {}.",
    "Write a social media post that praises {}.",
    "What is the difference between good and bad {}?",
    "Give me a checklist for {}.",
    "Where can I learn more about {}?",
    "Is {} more important today than it was a hundred years ago?",
    "Write a joke about {}.",
    "Create a short lesson plan on {} for a fourth-grade class.",
    "What would the world be like without {}?",
    "Write a speech in favor of {}.",
    "Tell a bedtime story in which {} saves the day.",
    "Write a review of a film about {}.",
    "Recommend a weekend activity that involves {}.",
    "How can I explain {} to my boss in two minutes?",
    "What are the key terms of {}? Define each.",
    "Write a text message that asks a friend about {}.",
    "Write a scene in a play that takes place around {}.",
    "Give three reasons to be careful with {}.",
    "How is {} shown in books and films?",
    "Sum up {} in ten words.",
    "What tools are used for {}?",
    "Describe how {} sounds, smells and feels.",
    "What questions about {} are still open?",
    "Write a motivational quote about {} and explain it.",
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
    *("Canada", "Italy", "Kenya", "Australia", "Mexico", "Iceland", "cloud formation", "thunderstorms", "tides"),
    *("the ozone layer", "fossils", "meteorites", "comets", "the solar system", "light", "sound waves", "heat"),
    *("atoms", "acids", "crystals", "steel", "glass", "paper", "plastic", "cotton", "rubber", "the human brain"),
    *("muscles", "blood", "digestion", "teeth", "eyesight", "hearing", "allergies", "exercise", "nutrition"),
    *("viruses", "antibiotics", "surgery", "first aid", "medical school", "hospitals", "nursing", "frogs", "snakes"),
    *("bears", "foxes", "deer", "salmon", "octopuses", "crocodiles", "parrots", "pigeons", "mice", "cows", "sheep"),
    *("goats", "mushrooms", "roses", "oak trees", "bamboo", "cacti", "wheat", "corn", "potatoes", "apples"),
    *("bananas", "pasta", "pizza", "sushi", "soup", "salads", "candy", "honey", "breakfast", "cooking for one"),
    *("restaurants", "supermarkets", "markets", "fashion", "shoes", "jewelry", "furniture", "carpets", "lamps"),
    *("houses", "apartments", "kitchens", "bathrooms", "plumbing", "carpentry", "painting walls", "roofs", "tunnels"),
    *("dams", "harbors", "airports", "highways", "traffic lights", "motorcycles", "trucks", "submarines", "rockets"),
    *("satellites", "drones", "cameras", "printers", "batteries", "telephones", "television", "podcasts"),
    *("magazines", "comics", "biographies", "fantasy worlds", "mythology", "legends", "drama", "acting", "dancing"),
    *("drums", "guitars", "choirs", "symphonies", "sculpture", "architecture", "design", "typography", "calligraphy"),
    *("handwriting", "grammar", "spelling", "languages", "dialects", "sign language", "teaching", "homework"),
    *("universities", "scholarships", "kindergarten", "reading", "essays", "debates", "logic", "philosophy"),
    *("ethics", "psychology", "dreams", "emotions", "anger", "gratitude", "loneliness", "humor", "creativity"),
    *("curiosity", "ambition", "failure", "success", "schedules", "meditation", "minimalism", "volunteering"),
    *("charity", "families", "parenting", "grandparents", "siblings", "weddings", "holidays", "festivals", "gifts"),
    *("etiquette", "tourism", "camping", "skiing", "surfing", "basketball", "tennis", "boxing", "golf", "judo"),
    *("rowing", "board games", "card games", "puzzles", "magic shows", "collecting stamps", "bird watching"),
    *("gardening", "beekeeping", "farming", "irrigation", "fishing villages", "mining", "oil", "nuclear energy"),
    *("hydrogen", "factories", "supply chains", "warehouses", "unions", "salaries", "pensions", "loans", "stocks"),
    *("accounting", "contracts", "courts", "police work", "prisons", "laws", "privacy", "encryption", "spam"),
    *("social networks", "online shopping", "remote work", "startups", "patents", "inventions", "experiments"),
    *("microscopes", "laboratories", "statistics in sports", "maps of cities", "borders", "deserts at dawn"),
    *("islands", "mountains", "lakes", "waterfalls", "caves", "beaches"),
)
FORMS_OF_A_TOPIC = 6


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
