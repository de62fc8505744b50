import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ImageUrl } from '../../../../src/inference/engines/openai/image-body.ts';
import { jsonPieces, longJsonBody, measureJson } from '../../../../src/inference/engines/openai/json-pieces.ts';
import { createOpenAiEngine } from '../../../../src/inference/engines/openai/openai-engine.ts';
import { event, Upstream, usageChunk, chatChunk } from '../../../support/upstream.ts';
import { all, engineRequest } from '../contract.ts';

const { signal } = new AbortController();
const mebibyte = 2 ** 20;

async function bytesOf(value: unknown): Promise<{ readonly text: string; readonly largest: number }> {
  const measured = await measureJson(value, signal);
  const body = longJsonBody(value, measured);
  const read = async (): Promise<Buffer> => {
    const all: Uint8Array[] = [];
    for await (const piece of body.pieces!) all.push(piece);
    largest = Math.max(...all.map((piece) => piece.length));
    return Buffer.concat(all);
  };
  let largest = 0;
  const bytes = await read();
  assert.equal(bytes.length, body.length);
  assert.deepEqual(await read(), bytes, 'it is sent again on another connection');
  return { text: bytes.toString(), largest };
}

test('the pieces are what JSON.stringify makes, whatever the value', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const pieces = [...jsonPieces(value)];
      assert.equal(pieces.join(''), JSON.stringify(value));
    }),
  );
  const odd = { a: undefined, b: [undefined, null, NaN, 1e999], c: {}, d: [], e: { f: undefined }, 'g"': '\ud800' };
  assert.equal([...jsonPieces(odd)].join(''), JSON.stringify(odd));
});

test('a long text is cut nowhere inside of a character, of an escape, or into large pieces', async () => {
  for (const unit of ['lorem ', '😀', 'x😀', '"\\\n', '\u0001', '漢字', 'é']) {
    const value = { messages: [{ content: unit.repeat(mebibyte / unit.length) }, { content: unit }], n: 1 };
    const { text, largest } = await bytesOf(value);
    assert.equal(text, JSON.stringify(value), unit);
    assert.ok(largest <= 6 * 65_536 + 1024, `${largest} bytes at once of ${JSON.stringify(unit)}`);
  }
});

test('many short texts are as little at once as one long one', async () => {
  const value = { messages: Array.from({ length: 20_000 }, (_, at) => ({ role: 'user', content: `number ${at}` })) };
  const { text, largest } = await bytesOf(value);
  assert.equal(text, JSON.stringify(value));
  assert.ok(largest < 70_000, String(largest));
});

test('images keep their places beside long texts, and do not count as text', async () => {
  const base64 = Buffer.alloc(700_001, 7).toString('base64');
  const size = { width: 1, height: 1 };
  const image = new ImageUrl({ type: 'image', mediaType: 'image/png', base64, size, at: 'x' });
  const long = 'ü'.repeat(200_000);
  const { text } = await bytesOf({ content: [{ text: long }, { image_url: { url: image } }, 'after'] });
  const url = `data:image/png;base64,${base64}`;
  assert.equal(text, JSON.stringify({ content: [{ text: long }, { image_url: { url } }, 'after'] }));
  const measured = await measureJson({ image, long }, signal);
  assert.equal(measured.length - measured.textLength, base64.length);
});

test('while a text of 20 MB is measured and written, others have their turns', async () => {
  const value = { content: 'lorem "ipsum" '.repeat((20 * mebibyte) / 14) };
  let turns = 0;
  let isOver = false;
  const turn = (): void => {
    turns++;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  await bytesOf(value);
  isOver = true;
  // Measured once and read twice, 320 pieces each.
  assert.ok(turns >= 900, `${turns} turns`);
});

test('a long request reaches its backend whole, with the length that its head says, on a used connection too', async () => {
  const upstream = await Upstream.start((exchange) => {
    exchange.events();
    exchange.chunk(chatChunk({ role: 'assistant', content: 'ok' }));
    exchange.chunk(chatChunk({}, 'stop'));
    exchange.chunk(usageChunk({ prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 }));
    exchange.chunk(event('[DONE]'));
    exchange.endChunks();
  });
  const text = 'Größe: "\\n" 😀 '.repeat(60_000);
  for (const flavor of ['openai', 'vllm', 'llama-server'] as const) {
    const engine = createOpenAiEngine({ name: 'far', url: upstream.url, flavor });
    for (let round = 0; round < 2; round++) {
      const from = upstream.exchanges.length;
      await all(engine, engineRequest(text), signal);
      const sent = upstream.exchanges.slice(from).find(({ path }) => path.endsWith('/chat/completions'));
      assert.ok(sent);
      const { messages } = JSON.parse(sent.body) as { messages: readonly { content: string }[] };
      assert.equal(messages[0]?.content, text, flavor);
      assert.equal(Number(sent.headers.get('content-length')), Buffer.byteLength(sent.body), flavor);
    }
    await engine.close();
  }
  await upstream.close();
});

test('a client that leaves while a long request is measured leaves nothing behind, and nothing is sent', async () => {
  const upstream = await Upstream.start((exchange) => exchange.json(200, {}));
  const engine = createOpenAiEngine({ name: 'far', url: upstream.url, flavor: 'openai' });
  const leaving = new AbortController();
  const reading = all(engine, engineRequest('x'.repeat(20 * mebibyte)), leaving.signal);
  setImmediate(() => leaving.abort(new Error('gone')));
  await assert.rejects(reading, /gone/);
  await engine.close();
  assert.equal(upstream.exchanges.length, 0);
  await upstream.close();
});
