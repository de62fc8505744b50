import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { modelCard, modelList } from '../../src/catalog/card.ts';
import { Catalog } from '../../src/catalog/catalog.ts';
import type { Model } from '../../src/catalog/model.ts';
import { capableModel, fullCapabilities, textCapabilities } from '../inference/pipeline/models.ts';

const textModel: Model = {
  ...capableModel,
  id: 'Text-1',
  capabilities: textCapabilities,
  zdrCapabilities: textCapabilities,
};

/** Every field of specification §2.2 to §2.4 with its type, but for those that may be present. */
const fieldsOfCard: Readonly<Record<string, string>> = {
  id: 'string',
  object: 'string',
  created: 'integer',
  type: 'string',
  display_name: 'string',
  created_at: 'string',
  owned_by: 'string',
  max_model_len: 'integer',
  zdr_supported: 'boolean',
  supports_vision: 'boolean',
  'service.display_name': 'string',
  'service.context_length': 'integer',
  'service.max_output_tokens': 'integer',
  'service.capabilities.vision': 'boolean',
  'service.capabilities.tools': 'boolean',
  'service.capabilities.reasoning': 'boolean',
  'service.capabilities.chat_completions.supported': 'boolean',
  'service.capabilities.chat_completions.streaming': 'boolean',
  'service.capabilities.chat_completions.tools': 'boolean',
  'service.capabilities.chat_completions.tool_streaming': 'boolean',
  'service.capabilities.chat_completions.json_object': 'boolean',
  'service.capabilities.chat_completions.json_schema': 'boolean',
  'service.capabilities.chat_completions.json_schema_refs': 'boolean',
  'service.capabilities.chat_completions.tools_with_response_format': 'boolean',
  'service.capabilities.chat_completions.n': 'boolean',
  'service.capabilities.chat_completions.regex': 'boolean',
  'service.capabilities.chat_completions.grammar': 'boolean',
  'service.capabilities.responses.supported': 'boolean',
  'service.capabilities.responses.streaming': 'boolean',
  'service.capabilities.responses.tools': 'boolean',
  'service.capabilities.responses.text_format': 'array',
  'service.capabilities.responses.raw_json_schema_text': 'boolean',
  'service.capabilities.messages.supported': 'boolean',
  'service.capabilities.messages.streaming': 'boolean',
  'service.capabilities.messages.tools': 'boolean',
  'service.capabilities.messages.tool_streaming': 'boolean',
  'service.capabilities.messages.vision': 'boolean',
  'service.capabilities.messages.reasoning': 'boolean',
  'service.capabilities.embeddings.supported': 'boolean',
  'service.capabilities.embeddings.dimensions': 'boolean',
  'service.capabilities.rerank.supported': 'boolean',
  'service.capabilities.zdr.supported': 'boolean',
  'service.capabilities.zdr.same_capabilities': 'boolean',
  'service.capabilities.reasoning_effort.efforts': 'array',
  'service.capabilities.reasoning_effort.default': 'string',
  'service.pricing.currency': 'string',
  'service.pricing.input_cents_per_million': 'number',
  'service.pricing.output_cents_per_million': 'number',
  'service.pricing.cache_read_cents_per_million': 'number',
  'service.pricing.cache_read_microcents_per_million': 'number',
};

test('a card has every field of the specification, in its type, and no other', () => {
  for (const model of [textModel, capableModel]) {
    const found = fieldsOf(card(model));
    assert.deepEqual(Object.keys(found).sort(), Object.keys(fieldsOfCard).sort());
    for (const [field, type] of Object.entries(fieldsOfCard))
      assert.ok(hasType(found[field], type), `${field} is a ${type}`);
  }
});

test('a model of text alone promises text alone', () => {
  const trueFlags = (model: Model): string[] =>
    Object.entries(fieldsOf(card(model)))
      .filter(([, value]) => value === true)
      .map(([field]) => field);
  assert.deepEqual(trueFlags(textModel), [
    'service.capabilities.chat_completions.supported',
    'service.capabilities.chat_completions.streaming',
    'service.capabilities.responses.supported',
    'service.capabilities.responses.streaming',
    'service.capabilities.messages.supported',
    'service.capabilities.messages.streaming',
  ]);
  const { responses, reasoning_effort: effort } = card(textModel).service.capabilities;
  assert.deepEqual([responses.text_format, effort.efforts, effort.default], [['text'], ['none'], 'none']);
});

test('fields that are the same fact are the same value', () => {
  const { service, ...outer } = card(capableModel);
  assert.deepEqual([outer.max_model_len, outer.supports_vision, outer.zdr_supported], [8192, true, true]);
  assert.deepEqual(
    [service.context_length, service.capabilities.vision, service.capabilities.zdr.supported],
    [8192, true, true],
  );
  assert.deepEqual(
    [outer.id, outer.object, outer.created, outer.owned_by],
    ['capable', 'model', 1_790_000_000, 'tests'],
  );
  // Contracts §1.2.
  assert.deepEqual(
    [outer.type, outer.display_name, outer.created_at],
    ['model', service.display_name, '2026-09-21T14:13:20.000Z'],
  );
});

test('§2.3: zero data retention with the same features, with others, and not at all', () => {
  const others = { ...fullCapabilities, chat: { ...fullCapabilities.chat, regex: false } };
  const zdrOf = (model: Model) => card(model).service.capabilities.zdr;
  assert.deepEqual(zdrOf(capableModel), { supported: true, same_capabilities: true });
  assert.deepEqual(zdrOf({ ...capableModel, capabilities: others }), { supported: true, same_capabilities: false });
  assert.equal(card({ ...capableModel, capabilities: others }).service.capabilities.chat_completions.regex, false);
  assert.deepEqual(zdrOf(textModel), { supported: false, same_capabilities: false });
});

test('optional fields are absent, not null; an absent output cap is null, not absent', () => {
  const printed = JSON.stringify(card({ ...textModel, maxOutputTokens: null }));
  assert.match(printed, /"max_output_tokens":null/);
  assert.doesNotMatch(printed, /description|tier|deprecation_date/);
  const { service } = card({ ...textModel, description: 'Small.', tier: 'standard', deprecationDate: '2027-06-30' });
  assert.deepEqual([service.description, service.tier, service.deprecation_date], ['Small.', 'standard', '2027-06-30']);
});

test('§2.4: prices are in cents per million, the cached one also exact in microcents', () => {
  const { pricing } = modelCard(
    capableModel,
    { input: 5_000_000n, output: 12_345_678n, cacheRead: 2_500_000n },
    0,
  ).service;
  assert.deepEqual(pricing, {
    currency: 'usd',
    input_cents_per_million: 5,
    output_cents_per_million: 12.345678,
    cache_read_cents_per_million: 3,
    cache_read_microcents_per_million: 2_500_000,
  });
});

test('a price on the card reads back as the price that is charged', () => {
  fc.assert(
    fc.property(
      fc.bigInt({ min: 0n, max: 10n ** 12n }),
      fc.bigInt({ min: 0n, max: 10n ** 12n }),
      (input, cacheRead) => {
        const { pricing } = modelCard(capableModel, { input, output: input, cacheRead }, 0).service;
        assert.equal(BigInt(Math.round(pricing.input_cents_per_million * 1_000_000)), input);
        assert.equal(BigInt(pricing.cache_read_microcents_per_million), cacheRead);
        assert.ok(Math.abs(pricing.cache_read_cents_per_million * 1_000_000 - Number(cacheRead)) <= 500_000);
      },
    ),
  );
});

test('§2.1: the list', () => {
  const paging = { has_more: false, first_id: 'Text-1', last_id: 'capable' };
  const cards = [card(textModel), card(capableModel)];
  assert.deepEqual(modelList(cards), { object: 'list', data: cards, ...paging });
  assert.deepEqual(modelList([]), { object: 'list', data: [], has_more: false, first_id: null, last_id: null });
});

test('§2.2: ids match in any case; the card keeps its own spelling', () => {
  const catalog = new Catalog([textModel, capableModel]);
  for (const id of ['Text-1', 'text-1', 'TEXT-1']) assert.equal(catalog.find(id, 0)?.model, textModel);
  for (const id of ['', 'text-2', ' text-1', '__proto__', 'constructor']) assert.equal(catalog.find(id, 0), undefined);
  assert.throws(() => new Catalog([textModel, { ...capableModel, id: 'TEXT-1' }]), /same id/);
});

const card = (model: Model) => modelCard(model, model.prices, 1_790_000_000);

/** Leaves by their path; lists are leaves. */
function fieldsOf(value: object, path = ''): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, inner]: [string, unknown]) => {
      const field = path === '' ? name : `${path}.${name}`;
      const isLeaf = typeof inner !== 'object' || inner === null || Array.isArray(inner);
      return isLeaf ? [[field, inner]] : Object.entries(fieldsOf(inner, field));
    }),
  );
}

function hasType(value: unknown, type: string): boolean {
  if (type === 'integer') return Number.isInteger(value);
  return type === 'array' ? Array.isArray(value) : typeof value === type;
}
