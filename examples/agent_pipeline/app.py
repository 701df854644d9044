"""An agent as a job: it plans, lets a pipeline of tools do the work, and waits for a person."""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from typing import Any

from examples.agent_pipeline.model import Model
from windlass import (
    PIPELINE,
    Backoff,
    Cancel,
    Context,
    Inject,
    Kind,
    Pipeline,
    Retry,
    Stage,
    Windlass,
)

# WINDLASS_URL says where else the jobs may be.
app = Windlass(os.environ.get("WINDLASS_URL", f"sqlite:///{tempfile.gettempdir()}/agent.db"))
MODEL = Model()
QUICKLY = Retry(max_retries=3, backoff=Backoff(base=timedelta(milliseconds=100)))
WRITE = Kind("write", dict[str, Any])
"""Takes all of the context that the tools share, whatever those were."""


@app.provide
def open_model() -> Model:
    """Provide the model to handlers."""
    return MODEL


@app.job(retry=QUICKLY)
async def answer(ctx: Context, question: str, model: Model = Inject) -> str | Cancel:
    """Answer a question. Every call of the model is a step, so that none is paid for twice."""
    plan = await ctx.step("plan", model.plan, question)
    await ctx.step("start the tools", start_tools, plan, question, str(ctx.job_id))
    text: str = await ctx.wait_for(f"written:{ctx.job_id}", timeout="1h")
    verdict = await ctx.wait_for(f"verdict:{ctx.job_id}", timeout="7d")
    return text if verdict == "good" else Cancel(f"a person said: {verdict}")


async def start_tools(plan: list[dict[str, str]], question: str, agent: str) -> None:
    """Enqueue what the model chose. A tool is a registered kind: a model cannot name any other."""
    tools = [
        Stage(use["tool"], name=f"{use['tool']} {use['word']}", arguments={"word": use["word"]})
        for use in plan
    ]
    pipeline = Pipeline(
        steps=(*tools, Stage("write")), context={"question": question, "agent": agent}
    )
    # Should this run twice, because it crashed after the enqueue, there is still one pipeline.
    await app.producer(PIPELINE).using(unique=agent, max_retries=3).aenqueue(pipeline)


@app.job
async def define(word: str, model: Model = Inject) -> str:
    """Tell what a word means: a tool."""
    return await model.define(word)


@app.job(WRITE)
async def write(context: dict[str, Any], model: Model = Inject) -> str:
    """Write the answer from what the tools found, and let the agent know."""
    facts = [found for name, found in context.items() if name.startswith("define ")]
    text = await model.write(context["question"], facts)
    await app.asend_event(f"written:{context['agent']}", text)
    return text
