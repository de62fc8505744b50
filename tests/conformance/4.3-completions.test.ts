import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { errorTable } from '../../src/platform/errors.ts';
import type { ErrorCode } from '../../src/platform/errors.ts';
import { ChatService } from './chat-service.ts';
import { readCompletion, readCompletionStream } from './completions-reader.ts';
import type { ReadCompletion, ReadCompletionChoice } from './completions-reader.ts';
import { inRepository } from '../support/repository.ts';

/** Text completions from the client's side (specification §4.3, contracts §1.1). */
const chat = new ChatService([
  { id: 'speaker', says: ['Hé', 'llo', ' 😀', ' wor', 'ld', '!'] },
  { id: 'random', says: ['<think>', 'hm', '</think>', ' four'] },
  {
    id: 'scripted',
    scripts: `- when: { last_text: think }
  say: [ { reasoning: "hm well" }, { text: "yes" } ]
- when: { last_text: tool }
  say: [ { text: "Let me look." }, { tool_call: { name: look } } ]
- say: [ { text: "one two three" } ]`,
    more: '    capabilities: { logprobs: true, reasoning: true }\n    reasoning: { efforts: [none, high], default: high }\n',
  },
  {
    id: 'plain',
    scripts: '- say: [ { text: "hi" } ]',
    more: '    capabilities: { tools: false, chat_completions: { supported: false } }\n',
  },
  { id: 'short', scripts: '- say: [ { text: "a b c" } ]', more: '    max_output_tokens: 2\n' },
]);
before(() => chat.start());
after(() => chat.dispose());

const ask = (body: object): Promise<Response> =>
  fetch(`${chat.service.url}/v1/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${chat.service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

async function whole(body: object): Promise<ReadCompletion> {
  const answer = await ask(body);
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  assert.equal(answer.headers.get('content-type'), 'application/json');
  return readCompletion(text);
}

async function streamed(body: object): Promise<ReadCompletion> {
  const answer = await ask({ ...body, stream: true });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  assert.equal(answer.headers.get('content-type'), 'text/event-stream; charset=utf-8');
  return readCompletionStream(text.replaceAll(/^:.*\n\n/gm, ''));
}

/** The same both ways: what a fixed seed promises. */
async function both(body: object): Promise<ReadCompletion> {
  const [one, other] = [await whole({ seed: 7, ...body }), await streamed({ seed: 7, ...body })];
  const bare = ({ choices, usage }: ReadCompletion) => {
    for (const choice of choices) choice.promptTokenIds ??= [];
    // What of a prompt is in the cache depends on what was asked before.
    return { choices, usage: usage && { ...usage, prompt_tokens_details: undefined } };
  };
  assert.deepEqual(bare(other), bare(one));
  return one;
}

const first = ({ choices }: ReadCompletion): ReadCompletionChoice => {
  assert.ok(choices[0]);
  return choices[0];
};

async function refused(body: object, code: ErrorCode, param?: string): Promise<void> {
  const answer = await ask({ model: 'scripted', prompt: 'x', ...body });
  const sent = await answer.text();
  const { error } = JSON.parse(sent) as { error: { code: ErrorCode; param?: string; request_id: string } };
  assert.deepEqual([error.code, error.param], [code, param], sent);
  assert.equal(answer.status, errorTable[code].status);
  assert.equal(error.request_id, answer.headers.get('x-request-id'));
}

describe('prompt', () => {
  test('§4.3 an array of token ids', async () => {
    const text = await whole({ model: 'speaker', prompt: 'assistant\n', return_token_ids: true });
    const ids = first(text).promptTokenIds ?? [];
    assert.ok(ids.length > 0);
    const byIds = await both({ model: 'speaker', prompt: ids });
    assert.equal(first(byIds).text, 'Héllo 😀 world!');
    assert.equal(byIds.usage?.prompt_tokens, ids.length);
  });

  test('a string goes on as it stands, without a template', async () => {
    const { id, choices, usage } = await both({ model: 'speaker', prompt: 'assistant\n' });
    assert.match(id, /^cmpl-[0-9a-f]{32}$/);
    assert.equal(choices[0]?.text, 'Héllo 😀 world!');
    assert.equal(choices[0].finishReason, 'stop');
    // One token is the trigger of the model; a template would have more.
    assert.equal(usage?.prompt_tokens, 1);
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  });

  test('several strings, and several arrays of ids: choice = prompt × n + i', async () => {
    const texts = await both({ model: 'speaker', prompt: ['a assistant\n', 'b assistant\n'], n: 2, echo: true });
    assert.deepEqual(
      texts.choices.map(({ index, text }) => [index, text]),
      ['a', 'a', 'b', 'b'].map((prompt, index) => [index, `${prompt} assistant\nHéllo 😀 world!`]),
    );
    const [one, two] = await Promise.all(
      ['a assistant\n', 'b assistant\n'].map((prompt) => whole({ model: 'speaker', prompt, return_token_ids: true })),
    );
    const prompts = [one, two].map((read) => first(read!).promptTokenIds);
    const ids = await both({ model: 'speaker', prompt: prompts, return_token_ids: true });
    assert.deepEqual(
      ids.choices.map(({ promptTokenIds }) => promptTokenIds),
      prompts,
    );
    // Each prompt is counted once, however many answers it gets.
    assert.equal(texts.usage?.prompt_tokens, ids.usage?.prompt_tokens);
  });

  test('ids must be in the vocabulary: 400 unsupported_value, naming the token', async () => {
    for (const model of ['speaker', 'scripted']) {
      await refused({ model, prompt: [1, 99_999_999] }, 'unsupported_value', 'prompt[1]');
      await refused({ model, prompt: [[1], [2, 99_999_999]] }, 'unsupported_value', 'prompt[1][1]');
      await refused({ model, prompt: [1, -1] }, 'unsupported_value', 'prompt[1]');
      await refused({ model, stop_token_ids: [99_999_999] }, 'unsupported_value', 'stop_token_ids');
    }
  });

  test('mixed, empty and wrong ones: 422', async () => {
    for (const [prompt, param] of [
      [[1, 'a'], 'prompt[0]'],
      [['a', 1], 'prompt[0]'],
      [[[1], ['a']], 'prompt[1][0]'],
      [[1.5], 'prompt[0]'],
      [[], 'prompt'],
      [[[]], 'prompt[0]'],
      ['', 'prompt'],
      [[''], 'prompt[0]'],
      [5, 'prompt'],
      [null, 'prompt'],
      [new Array(129).fill('a'), 'prompt'],
    ] as const)
      await refused({ prompt }, 'schema_validation_failed', param);
  });

  test('missing: 400', async () => {
    await refused({ prompt: undefined }, 'invalid_json_request', 'prompt');
    await refused({ model: undefined }, 'invalid_json_request', 'model');
  });

  test('there is a bound on prompts times n', async () => {
    await refused({ prompt: ['a', 'b'], n: 65 }, 'unsupported_value', 'n');
    const many = await whole({ model: 'scripted', prompt: new Array(64).fill('a'), n: 2 });
    assert.equal(many.choices.length, 128);
  });

  test('each prompt has the window for itself', async () => {
    const long = new Array<string>(4).fill('word '.repeat(600));
    assert.equal((await whole({ model: 'scripted', prompt: long })).choices.length, 4);
    await refused({ prompt: ['a', 'word '.repeat(6000)] }, 'context_length_exceeded', 'prompt');
  });
});

describe('max_tokens', () => {
  test('is 16 when it is absent', async () => {
    const answer = await both({ model: 'speaker', prompt: 'assistant\n', ignore_eos: true, temperature: 0 });
    assert.equal(answer.usage?.completion_tokens, 16);
    assert.equal(first(answer).finishReason, 'length');
  });

  test('0 scores the prompt, with echo only', async () => {
    const scored = first(
      await both({ model: 'speaker', prompt: 'assistant\n x', max_tokens: 0, echo: true, logprobs: 1 }),
    );
    assert.equal(scored.text, 'assistant\n x');
    assert.equal(scored.finishReason, 'length');
    assert.ok(scored.logprobs.tokens.length > 1);
    assert.equal(scored.logprobs.token_logprobs[0], null);
    assert.ok(scored.logprobs.token_logprobs.slice(1).every((logprob) => typeof logprob === 'number' && logprob <= 0));
    await refused({ max_tokens: 0 }, 'schema_validation_failed', 'max_tokens');
  });

  test('§4.2.1: beyond the window 400, without a second try; capped by the card', async () => {
    await refused({ max_tokens: 4096 }, 'context_length_exceeded', 'prompt');
    const capped = await whole({ model: 'short', prompt: 'x', max_tokens: 100 });
    assert.equal(capped.usage?.completion_tokens, 2);
  });
});

describe('echo and logprobs', () => {
  test('echo: text = prompt + completion', async () => {
    assert.equal(
      first(await both({ model: 'speaker', prompt: 'assistant\n', echo: true })).text,
      'assistant\nHéllo 😀 world!',
    );
    assert.equal(
      first(await both({ model: 'scripted', prompt: 'Déjà vu:', echo: true })).text,
      'Déjà vu:one two three',
    );
  });

  test('logprobs: four lists of one length, the chosen token among the alternatives, offsets in characters', async () => {
    for (const logprobs of [0, 2, 5]) {
      const answer = await both({ model: 'speaker', prompt: 'assistant\n', logprobs });
      const { text, logprobs: reported } = first(answer);
      assert.equal(reported.tokens.length, answer.usage?.completion_tokens);
      assertPlaced(text, reported);
      for (const [index, top] of reported.top_logprobs.entries()) {
        assert.ok(top);
        assert.ok(
          Object.keys(top).length >= Math.max(1, Math.min(logprobs, 1)) && Object.keys(top).length <= logprobs + 1,
        );
        assert.equal(top[reported.tokens[index]!], reported.token_logprobs[index]);
      }
    }
  });

  test('with echo the tokens of the prompt are included, and the first has null', async () => {
    const prompt = 'Ünïcode 😀 then assistant\n';
    const { text, logprobs, promptTokenIds } = first(
      await both({ model: 'speaker', prompt, echo: true, logprobs: 1, return_token_ids: true }),
    );
    assert.equal(logprobs.token_logprobs[0], null);
    assert.equal(logprobs.top_logprobs[0], null);
    assert.ok(logprobs.token_logprobs.slice(1).every((logprob) => typeof logprob === 'number'));
    assertPlaced(text, logprobs);
    const ofPrompt = logprobs.text_offset.filter((offset) => offset < [...prompt].length);
    assert.equal(ofPrompt.length, promptTokenIds?.length);
  });

  test('a model whose card has no logprobs: 400; more than 5: 422', async () => {
    await refused({ model: 'plain', logprobs: 1 }, 'unsupported_parameter', 'logprobs');
    await refused({ logprobs: 6 }, 'schema_validation_failed', 'logprobs');
    await refused({ logprobs: true }, 'schema_validation_failed', 'logprobs');
  });
});

describe('token ids', () => {
  test('return_token_ids: those of the answer and of the prompt', async () => {
    const reported = await both({ model: 'speaker', prompt: 'assistant\n', return_token_ids: true, max_tokens: 3 });
    const { tokenIds, promptTokenIds } = first(reported);
    assert.equal(tokenIds.length, 3);
    assert.equal(promptTokenIds?.length, reported.usage?.prompt_tokens);
    // They are what the model understands.
    const on = await both({ model: 'speaker', prompt: [...(promptTokenIds ?? []), ...tokenIds] });
    assert.equal(first(reported).text + first(on).text, 'Héllo 😀 world!');
    assert.equal(first(await both({ model: 'speaker', prompt: 'assistant\n' })).promptTokenIds?.length, 0);
  });

  test('return_tokens_as_token_ids: tokens of logprobs by their ids', async () => {
    const fields = { model: 'speaker', prompt: 'assistant\n', logprobs: 1, return_token_ids: true };
    const { logprobs, tokenIds } = first(await both({ ...fields, return_tokens_as_token_ids: true }));
    assert.deepEqual(
      logprobs.tokens,
      tokenIds.map((id) => `token_id:${id}`),
    );
    assert.ok(logprobs.top_logprobs.every((top, index) => logprobs.tokens[index]! in (top ?? {})));
  });

  test('stop_token_ids end the answer before the token, or behind it with include_stop_str_in_output', async () => {
    const { tokenIds } = first(await whole({ model: 'speaker', prompt: 'assistant\n', return_token_ids: true }));
    const fields = { model: 'speaker', prompt: 'assistant\n', stop_token_ids: [tokenIds[2]] };
    const before = first(await both(fields));
    assert.deepEqual([before.text, before.stop, before.finishReason], ['Héllo', tokenIds[2], 'stop']);
    assert.equal(first(await both({ ...fields, include_stop_str_in_output: true })).text, 'Héllo 😀');
  });

  test('stop: the sequence is reported, and is a part of the text when that is asked for under either name', async () => {
    const fields = { model: 'speaker', prompt: 'assistant\n', stop: ['nothing', '😀 w'] };
    const cut = first(await both(fields));
    assert.deepEqual([cut.text, cut.stop], ['Héllo ', '😀 w']);
    for (const name of ['include_stop_str_in_output', 'no_stop_trim'])
      assert.equal(first(await both({ ...fields, [name]: true })).text, 'Héllo 😀 w');
    assert.equal(first(await both({ model: 'speaker', prompt: 'assistant\n' })).stop, null);
  });

  test('ignore_eos and min_tokens; one that is more than max_tokens is 422', async () => {
    const fields = { model: 'speaker', prompt: 'assistant\n', temperature: 0 };
    assert.equal((await both(fields)).usage?.completion_tokens, 6);
    const more = await both({ ...fields, min_tokens: 10, max_tokens: 12 });
    assert.ok((more.usage?.completion_tokens ?? 0) >= 10);
    assert.equal((await both({ ...fields, ignore_eos: true, max_tokens: 9 })).usage?.completion_tokens, 9);
    await refused({ min_tokens: 3, max_tokens: 2 }, 'schema_validation_failed', 'min_tokens');
  });

  test('what an engine cannot do is refused, whatever else it is asked', async () => {
    await refused({ ignore_eos: true }, 'unsupported_parameter', 'ignore_eos');
    await refused({ min_tokens: 1 }, 'unsupported_parameter', 'min_tokens');
  });
});

describe('constraints', () => {
  const random = { model: 'random', prompt: [60, 61], max_tokens: 60 };

  test('§4.3 ebnf: a string grammar', async () => {
    const ebnf = '# a\nroot ::= greeting " " [a-c]{3}\ngreeting ::= "hi" | "yo"';
    assert.match(first(await both({ ...random, ebnf })).text, /^(hi|yo) [a-c]{3}$/);
  });

  test('regex, JSON Schema by each of its names, a choice, and a grammar', async () => {
    assert.match(first(await both({ ...random, regex: '[0-9]{3}-[xyz]' })).text, /^[0-9]{3}-[xyz]$/);
    const schema = {
      type: 'object',
      properties: { a: { enum: [1, 2] } },
      required: ['a'],
      additionalProperties: false,
    };
    for (const form of [
      { json_schema: JSON.stringify(schema) },
      { response_format: { type: 'json_schema', json_schema: { name: 's', schema } } },
      { structured_outputs: { json: schema } },
      { structured_outputs: { json: JSON.stringify(schema) } },
    ]) {
      const { a } = JSON.parse(first(await both({ ...random, ...form })).text) as { a: number };
      assert.ok(a === 1 || a === 2);
    }
    const choice = ['a"b\\', 'c\nd', 'é = ::='];
    assert.ok(choice.includes(first(await both({ ...random, structured_outputs: { choice } })).text));
    assert.match(
      first(await both({ ...random, structured_outputs: { grammar: 'root ::= "x" | "y"' } })).text,
      /^[xy]$/,
    );
    assert.match(first(await both({ ...random, structured_outputs: { regex: 'q{2}' } })).text, /^qq$/);
    assert.match(
      first(await both({ ...random, response_format: { type: 'grammar', grammar: 'root ::= "z"' } })).text,
      /^z$/,
    );
  });

  test('two at once: 400 unsupported_parameter, naming the second', async () => {
    const ebnf = 'root ::= "a"';
    for (const [body, param] of [
      [{ ebnf, regex: 'a' }, 'regex'],
      [{ regex: 'a', json_schema: '{}' }, 'json_schema'],
      [{ ebnf, response_format: { type: 'json_object' } }, 'response_format'],
      [{ ebnf, structured_outputs: { choice: ['a'] } }, 'structured_outputs.choice'],
      [{ structured_outputs: { regex: 'a', grammar: ebnf } }, 'structured_outputs.grammar'],
    ] as const)
      await refused({ model: 'random', ...body }, 'unsupported_parameter', param);
    assert.equal((await ask({ ...random, ebnf, response_format: { type: 'text' } })).status, 200);
  });

  test('a broken one: 400 unsupported_value with its place, before anything is generated', async () => {
    const answer = await ask({ ...random, ebnf: 'root ::= "a"\nb ::= c' });
    const { error } = (await answer.json()) as { error: { code: string; param: string; message: string } };
    assert.deepEqual([answer.status, error.code, error.param], [400, 'unsupported_value', 'ebnf']);
    assert.match(error.message, /line \d+, column \d+/);
    await refused({ model: 'random', regex: '(' }, 'unsupported_value', 'regex');
    await refused({ model: 'random', json_schema: '{' }, 'unsupported_value', 'json_schema');
    await refused({ model: 'random', json_schema: '[]' }, 'unsupported_value', 'json_schema');
    await refused(
      { model: 'random', structured_outputs: { regex: '(' } },
      'unsupported_value',
      'structured_outputs.regex',
    );
    await refused({ response_format: { type: 'xml' } }, 'unsupported_response_format', 'response_format.type');
  });
});

describe('requests of real clients', () => {
  const folder = inRepository('tests', 'fixtures', 'wire', 'completions');
  for (const file of readdirSync(folder)) {
    test(`${file} is answered, also padded to the size of real prompts`, async () => {
      const { request } = JSON.parse(readFileSync(join(folder, file), 'utf8')) as {
        request: { body: Readonly<Record<string, unknown>> };
      };
      await both({ ...request.body, model: 'scripted' });
      const prompt = (request.body['prompt'] as readonly number[]).concat(new Array<number>(3000).fill(7));
      const padded = await both({ ...request.body, model: 'scripted', prompt });
      assert.equal(padded.usage?.prompt_tokens, prompt.length);
    });
  }
});

describe('the rest of the table', () => {
  test('suffix, best_of above 1 and structural tags are refused', async () => {
    await refused({ suffix: 'x' }, 'unsupported_parameter', 'suffix');
    await refused({ best_of: 2 }, 'unsupported_parameter', 'best_of');
    await refused(
      { structured_outputs: { structural_tag: 'x' } },
      'unsupported_parameter',
      'structured_outputs.structural_tag',
    );
    assert.equal(
      (await ask({ model: 'scripted', prompt: 'x', suffix: null, best_of: 1, user: 'u', unknown: [1] })).status,
      200,
    );
  });

  test('a model without chat completions goes on with texts', async () => {
    assert.equal(first(await whole({ model: 'plain', prompt: 'x' })).text, 'hi');
  });

  test('nothing of a text is taken for reasoning: think tags stay', async () => {
    const { choices, usage } = await both({ model: 'random', prompt: 'assistant\n' });
    assert.equal(choices[0]?.text, '<think>hm</think> four');
    assert.equal(usage?.completion_tokens_details.reasoning_tokens, 0);
  });

  test('reasoning and calls that a backend tells apart have no place here: left out, and counted', async () => {
    const thought = await both({ model: 'scripted', prompt: 'think' });
    assert.deepEqual([first(thought).text, first(thought).finishReason], ['yes', 'stop']);
    assert.equal(thought.usage?.completion_tokens, 3);
    const called = await both({ model: 'scripted', prompt: 'tool' });
    assert.deepEqual([first(called).text, first(called).finishReason], ['Let me look.', 'stop']);
  });

  test('sampling: a seed repeats, n differs, logit_bias and the drop rules hold', async () => {
    const random = { model: 'random', prompt: [60, 61, 62], max_tokens: 12, ignore_eos: true, n: 3, temperature: 1.5 };
    const texts = first(await both({ ...random, seed: 5 })).text;
    assert.equal(first(await whole({ ...random, seed: 5 })).text, texts);
    const certain = await both({ model: 'speaker', prompt: 'x', logit_bias: { '126': 100 }, max_tokens: 3 });
    assert.equal(first(certain).text, '~~~');
  });

  test('unknown model, no key, wrong method', async () => {
    await refused({ model: 'nobody' }, 'model_not_found', 'model');
    const url = `${chat.service.url}/v1/completions`;
    assert.equal((await fetch(url, { method: 'POST', body: '{}' })).status, 401);
    assert.equal((await fetch(url)).status, 405);
  });
});

describe('money', () => {
  test('the same generation costs the same on chat and here', async () => {
    const answer = await chat.whole('scripted', 'x', { max_tokens: 5, reasoning_effort: 'none' });
    const text = await whole({ model: 'scripted', prompt: 'x', max_tokens: 5 });
    assert.equal(text.usage?.completion_tokens, answer.usage.completion_tokens);
    const { requests } = await chat.service.usage(2);
    const [ofText, ofChat] = requests;
    const price = ({
      prompt_tokens,
      completion_tokens,
    }: {
      prompt_tokens: number;
      completion_tokens: number;
    }): number => prompt_tokens * 5 + completion_tokens * 20;
    assert.ok(ofText && ofChat);
    assert.equal(ofText.prompt_tokens, text.usage?.prompt_tokens);
    assert.deepEqual([ofText.ending, ofChat.ending], ['finished', 'finished']);
    // Microcents for a token are cents for a million of them.
    assert.equal(ofText.cost_microcents, price(ofText));
    assert.equal(ofChat.cost_microcents, price(ofChat));
  });
});

/** Each token stands where the text says so, up to halves of characters. */
function assertPlaced(text: string, { tokens, text_offset }: ReadCompletionChoice['logprobs']): void {
  const characters = [...text];
  for (const [index, offset] of text_offset.entries()) {
    assert.ok(offset >= (text_offset[index - 1] ?? 0) && offset <= characters.length);
    const token = tokens[index] ?? '';
    if (token.includes('\uFFFD')) continue;
    assert.equal(characters.slice(offset, offset + [...token].length).join(''), token);
  }
}
