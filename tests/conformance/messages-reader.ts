import assert from 'node:assert/strict';

import { assertBlockShape, assertDeltaUsageShape, assertKeys, assertMessageShape } from './messages-shape.ts';
import type { Generation, WireMessage, WireUsage } from './messages-shape.ts';

export interface ReadMessage {
  /** What the events add up to; `undefined` when the stream broke before the message began. */
  readonly message: WireMessage | undefined;
  readonly error: unknown;
  /** Types of the events, in order. */
  readonly types: readonly string[];
}

type Data = Readonly<Record<string, unknown>> & { readonly type: string };
type Delta = Readonly<Record<string, string>> & { readonly type: string };

/**
 * Reads a stream of messages as clients do, and on the way holds it to contracts §1.2, "Stream, in this order": framing, event
 * names, one block at a time with indexes from 0, the signature once and last, arguments that parse, then the delta and the end.
 */
export function readMessageStream(sse: string, generation: Generation): ReadMessage {
  const events = eventsOf(sse);
  const types = events.map(({ type }) => type);
  let message: Record<string, unknown> | undefined;
  let open: Block | undefined;
  let blocks = 0;
  let isOver = false;
  let error: unknown;
  for (const data of events) {
    assert.equal(isOver, false, 'nothing follows the end');
    if (data.type === 'ping') {
      assertKeys(data, ['type']);
      continue;
    }
    if (data.type === 'error') {
      error = data['error'];
      isOver = true;
      continue;
    }
    if (data.type === 'message_start') {
      assert.equal(message, undefined, 'a stream has one message');
      assertKeys(data, ['type', 'message']);
      assertMessageShape(data['message'], generation);
      assert.deepEqual(data['message'].content, []);
      assert.equal(data['message'].stop_reason, null);
      assert.equal(data['message'].usage.output_tokens, 1);
      message = { ...data['message'], content: [] };
      continue;
    }
    assert.ok(message !== undefined, `${data.type} comes after message_start`);
    const content = message['content'] as unknown[];
    switch (data.type) {
      case 'content_block_start':
        assert.equal(open, undefined, 'blocks do not overlap');
        assert.equal(data['index'], blocks++, 'indexes have no gaps');
        assertBlockShape(data['content_block'], generation);
        open = new Block(data['content_block'] as unknown as Record<string, unknown>);
        break;
      case 'content_block_delta':
        assert.ok(open !== undefined);
        assert.equal(data['index'], blocks - 1);
        open.read(data['delta'] as Delta);
        break;
      case 'content_block_stop':
        assert.ok(open !== undefined);
        assert.equal(data['index'], blocks - 1);
        content.push(open.whole());
        open = undefined;
        break;
      case 'message_delta': {
        assert.equal(open, undefined, 'the last block is closed');
        assert.equal(message['stop_reason'], null, 'one delta of the message');
        const delta = data['delta'] as object;
        assertKeys(delta, ['stop_reason', 'stop_sequence', ...(generation === '2026-10-21' ? recentDelta : [])]);
        assertDeltaUsageShape(data['usage'] as WireUsage, generation);
        message = { ...message, ...delta, usage: { ...(message['usage'] as object), ...(data['usage'] as object) } };
        break;
      }
      case 'message_stop':
        assertKeys(data, ['type']);
        assert.notEqual(message['stop_reason'], null, 'the end comes after the delta');
        isOver = true;
        break;
      default:
        assert.fail(`no such event: ${data.type}`);
    }
  }
  assert.ok(isOver, 'the stream has an end');
  if (error !== undefined) return { message: message as WireMessage | undefined, error, types };
  assertMessageShape(message, generation);
  return { message, error, types };
}

const recentDelta = ['container', 'stop_details'];

/** A block while its deltas come. */
class Block {
  readonly #block: Record<string, unknown>;
  #json: string | undefined;
  #isSigned = false;

  constructor(block: Record<string, unknown>) {
    this.#block = { ...block };
    const empty = { text: { text: '' }, thinking: { thinking: '', signature: '' }, tool_use: { input: {} } };
    const expected = empty[block['type'] as keyof typeof empty] as Record<string, unknown>;
    for (const [name, value] of Object.entries(expected)) assert.deepEqual(block[name], value, 'a block begins empty');
  }

  read(delta: Delta): void {
    assert.equal(this.#isSigned, false, 'the signature is the last delta');
    switch (`${this.#block['type'] as string} ${delta.type}`) {
      case 'text text_delta':
        this.#block['text'] = (this.#block['text'] as string) + nonEmpty(delta['text']);
        return;
      case 'thinking thinking_delta':
        this.#block['thinking'] = (this.#block['thinking'] as string) + nonEmpty(delta['thinking']);
        return;
      case 'thinking signature_delta':
        this.#block['signature'] = nonEmpty(delta['signature']);
        this.#isSigned = true;
        return;
      case 'tool_use input_json_delta':
        this.#json = (this.#json ?? '') + delta['partial_json'];
        return;
      default:
        assert.fail(`a ${delta.type} in a ${this.#block['type'] as string}`);
    }
  }

  whole(): unknown {
    if (this.#block['type'] === 'thinking') assert.ok(this.#isSigned, 'thinking is signed');
    if (this.#block['type'] === 'tool_use') this.#block['input'] = inputOf(this.#json);
    return this.#block;
  }
}

function nonEmpty(text: string | undefined): string {
  assert.ok(text !== undefined && text !== '', 'a delta says something');
  return text;
}

/** Arguments that a model has left unfinished, or that are no object, are shown in the form that the vendor's documentation has. */
function inputOf(json: string | undefined): unknown {
  assert.ok(json !== undefined, 'a call has arguments');
  try {
    const value: unknown = JSON.parse(json);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch {
    // Shown as text.
  }
  return { INVALID_JSON: json };
}

/** Each event is a line with its type and a line with its data, which says the type again, ended by line feeds alone. */
function eventsOf(sse: string): Data[] {
  assert.ok(sse.endsWith('\n\n'), 'the last event is closed');
  assert.ok(!sse.includes('\r'), 'line ends are line feeds');
  return sse
    .slice(0, -2)
    .split('\n\n')
    .filter((event) => !event.startsWith(':'))
    .map((event) => {
      const [, type, json] = /^event: ([a-z_]+)\ndata: ([^\n]*)$/.exec(event) ?? [];
      assert.ok(type !== undefined && json !== undefined, `an event has a type and data: ${JSON.stringify(event)}`);
      const data = JSON.parse(json) as Data;
      assert.equal(data.type, type);
      return data;
    });
}
