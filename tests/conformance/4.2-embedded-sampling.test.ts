import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { readChatCompletion } from './chat-reader.ts';
import { ChatService } from './chat-service.ts';

/** What the sampling fields of §4.2 do on the embedded engine, from the client's side. */
const chat = new ChatService([
  { id: 'speaker', says: ['Hé', 'llo', ' 😀', ' wor', 'ld', '!'] },
  { id: 'parrot', says: [' once', ' more', ' and', ' again'], isEndless: true },
]);
before(() => chat.start());
after(() => chat.dispose());

interface WireLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
  readonly top_logprobs: readonly {
    readonly token: string;
    readonly logprob: number;
    readonly bytes: readonly number[];
  }[];
}

test('§4.2 logprobs with top_logprobs: a token, its logprob, its bytes and the likeliest ones, streamed as whole', async () => {
  const fields = { logprobs: true, top_logprobs: 3, seed: 1 };
  const whole = readChatCompletion(await (await chat.ask('speaker', 'Hi', fields)).text()).choices[0];
  const streamed = (await chat.streamed('speaker', 'Hi', fields)).read.choices[0];
  assert.equal(whole?.content, 'Héllo 😀 world!');
  assert.equal(streamed?.content, whole.content);
  assert.deepEqual(streamed.logprobs, whole.logprobs);
  const logprobs = whole.logprobs as readonly WireLogprob[];
  assert.equal(Buffer.from(logprobs.flatMap(({ bytes }) => bytes)).toString(), whole.content);
  for (const { token, logprob, bytes, top_logprobs: top } of logprobs) {
    assert.deepEqual(bytes, [...Buffer.from(token)]);
    assert.equal(top.length, 3);
    assert.equal(top[0]?.logprob, logprob);
    assert.ok(logprob <= 0);
  }
});

test('§4.2 logprobs alone returns no alternatives; without it nothing is returned', async () => {
  const [alone, without] = await Promise.all(
    [{ logprobs: true }, {}].map(async (fields) =>
      readChatCompletion(await (await chat.ask('speaker', 'Hi', fields)).text()),
    ),
  );
  const reported = (alone?.choices[0]?.logprobs ?? []) as readonly WireLogprob[];
  assert.equal(reported.length, 6);
  assert.ok(reported.every(({ top_logprobs }) => top_logprobs.length === 0));
  assert.deepEqual(without?.choices[0]?.logprobs, []);
});

test('§4.2 logit_bias -100 keeps a token from coming, 100 makes it come; an unknown id is 400', async () => {
  // Single bytes are the first tokens: 33 is `!`, 126 is `~`.
  const banned = await chat.whole('speaker', 'Hi', { logit_bias: { '33': -100 }, max_tokens: 6 });
  assert.ok(!(banned.choices[0]?.message.content ?? '').includes('!'));
  const certain = await chat.whole('speaker', 'Hi', { logit_bias: { '126': 100 }, max_tokens: 4 });
  assert.equal(certain.choices[0]?.message.content, '~~~~');
  const unknown = await chat.ask('speaker', 'Hi', { logit_bias: { '99999999': 1 } });
  assert.equal(unknown.status, 400);
  const { error } = (await unknown.json()) as { error: { code: string; param: string } };
  assert.deepEqual([error.code, error.param], ['unsupported_value', 'logit_bias']);
});

test('§4.2 n: that many choices, the prompt counted once', async () => {
  const one = await chat.whole('speaker', 'Hi');
  const three = await chat.whole('speaker', 'Hi', { n: 3 });
  assert.deepEqual(
    three.choices.map(({ index, message }) => [index, message.content]),
    [0, 1, 2].map((index) => [index, 'Héllo 😀 world!']),
  );
  assert.equal(three.usage.prompt_tokens, one.usage.prompt_tokens);
  assert.equal(three.usage.completion_tokens, one.usage.completion_tokens * 3);
});

test('§4.2 stop ends the answer before it, streamed as whole', async () => {
  const stop = ['nothing', 'o w'];
  assert.equal((await chat.whole('speaker', 'Hi', { stop: 'o w' })).choices[0]?.message.content, 'Héllo 😀 world!');
  assert.equal((await chat.whole('speaker', 'Hi', { stop: [...stop, '😀 w'] })).choices[0]?.message.content, 'Héllo ');
  const { read } = await chat.streamed('speaker', 'Hi', { stop: [...stop, '😀 w'] });
  assert.deepEqual([read.choices[0]?.content, read.choices[0]?.finishReason], ['Héllo ', 'stop']);
});

test('§2.5 length: the generation was stopped because the model began repeating itself', async () => {
  const whole = await chat.whole('parrot', 'Hi', { max_tokens: 1000 });
  assert.equal(whole.choices[0]?.finish_reason, 'length');
  // The same 20 tokens for the fifth time, none of them counted twice.
  assert.equal(whole.usage.completion_tokens, 100);
  const { read } = await chat.streamed('parrot', 'Hi', { max_tokens: 1000 });
  assert.equal(read.choices[0]?.finishReason, 'length');
  assert.equal(read.choices[0].content, whole.choices[0]?.message.content);
});
