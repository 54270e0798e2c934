"""Lines in, words re-keyed through a second agent, counts in a table with a changelog."""

import faust

app = faust.App("faust-words")
lines = app.topic("lines", value_type=str, value_serializer="raw")
words = app.topic("words", key_type=str, value_type=str)
totals = app.topic("totals", key_type=str, value_type=int)
counts = app.Table("counts", default=int)


@app.agent(lines)
async def split(stream):
    async for line in stream:
        for word in line.split():
            await words.send(key=word, value=word)


@app.agent(words)
async def count(stream):
    async for word in stream:
        counts[word] += 1
        await totals.send(key=word, value=counts[word])


if __name__ == "__main__":
    app.main()
