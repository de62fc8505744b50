/** Vectors and ranks of odd servers: what they mean, whatever way they say it; what is none fails (`TOKENHOUSE_TEST_ODD_SEEDS`). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError } from '../../../../src/platform/errors.ts';
import { createOpenAiEngine } from '../../../../src/inference/engines/openai/openai-engine.ts';
import { oddTask } from '../../../support/odd-servers/odd-task.ts';
import { Upstream } from '../../../support/upstream.ts';
import { all, engineRequest } from '../contract.ts';

const seeds = Number(process.env['TOKENHOUSE_TEST_ODD_SEEDS'] ?? 300);

test('vectors and ranks of odd servers', async () => {
  const first = Math.floor(Math.random() * 2 ** 31);
  let odd = oddTask(first);
  const upstream = await Upstream.start((exchange) => exchange.json(200, odd.body));
  // Its ranks are relevances as they come.
  const engine = createOpenAiEngine({ name: 'm', url: upstream.url, flavor: 'vllm' });
  try {
    for (let seed = first; seed < first + seeds; seed++) {
      odd = oddTask(seed);
      const { type, habits, fault, findings, promptTokens } = odd;
      const why = `seed ${seed}: ${type}, ${JSON.stringify({ ...habits, fault })}`;
      const prompt = { type: 'texts', prompts: findings.map(() => 'x') } as const;
      const task =
        type === 'embed'
          ? ({ type, field: 'input', dimensions: undefined } as const)
          : ({ type, field: 'documents', query: 'q' } as const);
      const answer = all(engine, { ...engineRequest('x'), prompt, task }, new AbortController().signal);
      if (fault !== undefined) {
        await assert.rejects(answer, (error) => error instanceof ApiError && error.code === 'backend_http_error', why);
        continue;
      }
      const events = (await answer).flat();
      const start = events.find((event) => event.type === 'start');
      assert.equal(start?.promptTokens, promptTokens, why);
      const given = events.flatMap((event) =>
        event.type === 'vector'
          ? [[event.choice, ...event.vector]]
          : event.type === 'score'
            ? [[event.choice, event.score]]
            : [],
      );
      const wanted = findings.map((finding, choice) => [choice, ...[finding].flat()]);
      assert.deepEqual(
        given,
        wanted.map(([choice, ...values]) => [
          choice,
          ...(type === 'embed' ? Float32Array.from(values as number[]) : values),
        ]),
        why,
      );
    }
  } finally {
    await engine.close();
    await upstream.close();
  }
});
