"""Faust's hello world: a timer sends a greeting to an agent, which prints it."""

import faust

app = faust.App("hello-world")


class Greeting(faust.Record):
    from_name: str
    to_name: str


greetings = app.topic("greetings", value_type=Greeting)


@app.agent(greetings)
async def hello(stream):
    async for greeting in stream:
        print(f"Hello from {greeting.from_name} to {greeting.to_name}")


@app.timer(interval=0.5)
async def send_greeting(app):
    await hello.send(value=Greeting(from_name="Faust", to_name="you"))


if __name__ == "__main__":
    app.main()
