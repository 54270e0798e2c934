"""Count words, exactly once, with nothing installed but onceward.

python examples/word_count.py worker
echo "to be or not to be" | onceward produce lines
onceward consume word-totals --from-beginning
"""

from onceward.streams import App, Stream

app = App("word-count", datadir=".onceward")
lines = app.topic("lines", value_type=str)
words = app.topic("words", key_type=str, value_type=str, partitions=4)
totals = app.topic("word-totals", key_type=str, value_type=int, partitions=4)
counts = app.Table("counts", default=int, partitions=4)


@app.agent(lines)
async def split(stream: Stream[str]) -> None:
    async for line in stream:
        for word in line.lower().split():
            await words.send(key=word, value=word)


@app.agent(words)
async def count(stream: Stream[str]) -> None:
    async for word in stream:
        counts[word] += 1
        await totals.send(key=word, value=counts[word])


if __name__ == "__main__":
    app.main()
