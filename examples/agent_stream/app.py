"""The handler: one run of an agent, which streams what it does."""

from __future__ import annotations

import os
import tempfile

from examples.agent_stream.model import Model
from windlass import Context, Inject, Retry, Windlass

# WINDLASS_URL says where else the jobs may be.
app = Windlass(os.environ.get("WINDLASS_URL", f"sqlite:///{tempfile.gettempdir()}/stream.db"))
MODEL = Model()


@app.provide
def open_model() -> Model:
    """Provide the model to handlers."""
    return MODEL


@app.job(name="agent.answer", retry=Retry(max_retries=3, initial="100ms"), timeout="2m")
async def answer(ctx: Context, article: str, model: Model = Inject) -> str:
    """Answer how many of an article there are, word by word."""
    await ctx.stream(f"[looking up {article}]\n")
    # A step is recorded: a retry gets its result, and the tool is not used again.
    stock = await ctx.step("look up", model.look_up, article)
    words = []
    async for word in model.write(article, stock):
        await ctx.stream(word)
        words.append(word)
    return "".join(words).strip()
