import assert from 'node:assert/strict';

/** The two generations of the wire: what a reader of the newer one must find, one of the older must not (contracts §1.2). */
export type Generation = '2023-06-01' | '2026-10-21';

export interface WireMessage {
  readonly id: string;
  readonly type: string;
  readonly role: string;
  readonly model: string;
  readonly content: readonly WireContent[];
  readonly stop_reason: string | null;
  readonly stop_sequence: string | null;
  readonly usage: WireUsage;
}

export type WireContent =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'thinking'; readonly thinking: string; readonly signature: string }
  | { readonly type: 'tool_use'; readonly id: string; readonly name: string; readonly input: Record<string, unknown> };

export interface WireUsage {
  readonly input_tokens: number;
  readonly cache_creation_input_tokens: number;
  readonly cache_read_input_tokens: number;
  readonly output_tokens: number;
  readonly output_tokens_details: { readonly thinking_tokens: number };
}

const stopReasons = [
  'end_turn',
  'max_tokens',
  'stop_sequence',
  'tool_use',
  'pause_turn',
  'refusal',
  'model_context_window_exceeded',
];

/**
 * Holds a message to the types that its vendor publishes (`Message` of `@anthropic-ai/sdk` 1.12 for the newer generation, of
 * 0.60 for the older one): every field that they require, and none that they do not have.
 */
export function assertMessageShape(value: unknown, generation: Generation): asserts value is WireMessage {
  const recent = generation === '2026-10-21';
  const message = value as WireMessage & Record<string, unknown>;
  assertKeys(message, [
    ...['id', 'type', 'role', 'model', 'content', 'stop_reason', 'stop_sequence', 'usage'],
    ...(recent ? ['container', 'diagnostics', 'stop_details'] : []),
  ]);
  assert.match(message.id, /^msg_[0-9a-f]{32}$/);
  assert.deepEqual([message.type, message.role], ['message', 'assistant']);
  assert.equal(typeof message.model, 'string');
  assert.ok(message.stop_reason === null || stopReasons.includes(message.stop_reason), String(message.stop_reason));
  assert.ok(message.stop_sequence === null || typeof message.stop_sequence === 'string');
  assert.equal(message.stop_sequence !== null, message.stop_reason === 'stop_sequence');
  for (const name of recent ? ['container', 'diagnostics', 'stop_details'] : []) assert.equal(message[name], null);
  assert.ok(Array.isArray(message.content));
  for (const block of message.content) assertBlockShape(block, generation);
  assertUsageShape(message.usage, generation);
}

export function assertBlockShape(value: unknown, generation: Generation): asserts value is WireContent {
  const recent = generation === '2026-10-21';
  const block = value as WireContent;
  switch (block.type) {
    case 'text':
      assertKeys(block, ['type', 'text', ...(recent ? ['citations'] : [])]);
      assert.equal(typeof block.text, 'string');
      return;
    case 'thinking':
      assertKeys(block, ['type', 'thinking', 'signature']);
      assert.deepEqual([typeof block.thinking, typeof block.signature], ['string', 'string']);
      return;
    case 'tool_use':
      assertKeys(block, ['type', 'id', 'name', 'input', ...(recent ? ['caller'] : [])]);
      assert.match(block.id, /^toolu_./s);
      assert.equal(typeof block.name, 'string');
      assert.ok(typeof block.input === 'object' && block.input !== null && !Array.isArray(block.input));
  }
}

const usageFields = [
  'input_tokens',
  'cache_creation_input_tokens',
  'cache_read_input_tokens',
  'output_tokens',
  'output_tokens_details',
];

function assertUsageShape(usage: WireUsage, generation: Generation): void {
  const recent = generation === '2026-10-21' ? ['cache_creation', 'inference_geo', 'server_tool_use', 'speed'] : [];
  assertKeys(usage, [...usageFields, 'service_tier', ...recent]);
  assertCounts(usage);
}

/** Of `message_delta`, which tells the figures that may have changed. */
export function assertDeltaUsageShape(usage: WireUsage, generation: Generation): void {
  assertKeys(usage, [...usageFields, ...(generation === '2026-10-21' ? ['server_tool_use'] : [])]);
  assertCounts(usage);
}

function assertCounts(usage: WireUsage): void {
  const { output_tokens_details: details, ...counts } = usage;
  for (const name of usageFields.slice(0, 4)) {
    const count = (counts as unknown as Record<string, number>)[name]!;
    assert.ok(Number.isInteger(count) && count >= 0, `${name} is ${count}`);
  }
  assert.ok(details.thinking_tokens >= 0);
}

/** These fields and no others. */
export function assertKeys(value: object, names: readonly string[]): void {
  assert.deepEqual(Object.keys(value).toSorted(), [...names].toSorted());
}
