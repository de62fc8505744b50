/** The saved prompts of the playground: bounds, names, owners, and what a browser may have stored. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import {
  deletePrompt,
  keepPrompt,
  keptPrompts,
  messagesOf,
  promptCharactersMax,
  promptName,
  promptsMax,
  renamePrompt,
} from '../../web/src/pages/playground/kept-prompts.ts';
import type { KeptPrompt, PromptStorage } from '../../web/src/pages/playground/kept-prompts.ts';

class Browser implements PromptStorage {
  readonly items = new Map<string, string>();
  isFull = false;

  getItem(name: string): string | null {
    return this.items.get(name) ?? null;
  }
  setItem(name: string, value: string): void {
    if (this.isFull) throw new DOMException('full', 'QuotaExceededError');
    this.items.set(name, value);
  }
}

const promptNamed = (name: string, system = ''): KeptPrompt => ({
  ...{ name, system, tools: '', schema: '', draft: '' },
  search: { model: 'demo', temperature: 0.5 },
  messages: [
    { role: 'user', text: 'a' },
    { role: 'assistant', text: 'b' },
  ],
});
const namesIn = (browser: Browser, owner = 'anna'): readonly string[] =>
  keptPrompts(owner, browser).map(({ name }) => name);

test('a prompt is read as it was kept, by its owner alone', () => {
  const browser = new Browser();
  assert.equal(keepPrompt('anna', promptNamed('one', 'Be short.'), browser), 'kept');
  assert.equal(keepPrompt('anna', promptNamed('two'), browser), 'kept');
  assert.deepEqual(JSON.parse(JSON.stringify(keptPrompts('anna', browser))), [
    promptNamed('two'),
    promptNamed('one', 'Be short.'),
  ]);
  assert.deepEqual(keptPrompts('bert', browser), []);
  assert.equal(keepPrompt('anna', promptNamed('one', 'Be long.'), browser), 'kept');
  assert.deepEqual(namesIn(browser), ['one', 'two']);
  assert.equal(keptPrompts('anna', browser)[0]!.system, 'Be long.');
});

test('names: no two are the same, and a prompt is renamed and deleted by its own', () => {
  const browser = new Browser();
  for (const name of ['one', 'two']) keepPrompt('anna', promptNamed(name), browser);
  assert.equal(renamePrompt('anna', 'one', 'two', browser), 'nameTaken');
  assert.equal(renamePrompt('anna', 'one', 'one', browser), 'kept');
  assert.equal(renamePrompt('anna', 'one', 'three', browser), 'kept');
  assert.deepEqual(namesIn(browser), ['two', 'three']);
  deletePrompt('anna', 'two', browser);
  assert.deepEqual(namesIn(browser), ['three']);
  assert.equal(promptName(`  ${'n'.repeat(200)} `).length, 80);
  assert.equal(promptName(' \n '), '');
});

test('bounds of number, size and room, none of which loses what was kept', () => {
  const browser = new Browser();
  for (let at = 0; at < promptsMax; at++)
    assert.equal(keepPrompt('anna', promptNamed(`${at}`), browser), 'kept', `${at}`);
  assert.equal(keepPrompt('anna', promptNamed('more'), browser), 'tooMany');
  assert.equal(keepPrompt('anna', promptNamed('0', 'in its place'), browser), 'kept');
  assert.equal(keepPrompt('anna', promptNamed('1', 'x'.repeat(promptCharactersMax)), browser), 'tooLong');
  assert.equal(namesIn(browser).length, promptsMax);
  const large = 'x'.repeat(promptCharactersMax - 500);
  const kept = namesIn(browser).map((name) => keepPrompt('anna', promptNamed(name, large), browser));
  assert.deepEqual([...new Set(kept)], ['kept', 'noRoom']);
  assert.ok([...browser.items.values()].every(({ length }) => length <= 1_000_000));
  browser.isFull = true;
  assert.equal(renamePrompt('anna', '0', 'other', browser), 'noRoom');
  assert.equal(namesIn(browser).length, promptsMax);
});

test('whatever is stored is read as prompts or as none', () => {
  const readOf = (stored: string): readonly KeptPrompt[] => {
    const browser = new Browser();
    browser.items.set('playground prompts anna', stored);
    return keptPrompts('anna', browser);
  };
  for (const stored of ['', '{', 'null', '{}', '[null, 1, [], {"name":""}, {"name":1}]'])
    assert.deepEqual(readOf(stored), [], stored);
  const [odd] = readOf(
    '[{"name":" a ","search":{"model":7,"temperature":"x","key":"tkh_1","family":"none"},"system":[],"messages":[1,{"role":"system","text":"b"},{"text":""}]}]',
  );
  const { search, ...others } = odd!;
  const { search: _, ...plain } = promptNamed('a');
  assert.deepEqual(others, { ...plain, messages: [{ role: 'user', text: 'b' }] });
  assert.equal(JSON.stringify(search), '{"model":"7"}');
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      for (const { name, system, messages } of readOf(JSON.stringify([value, { name: 'a', messages: value }])))
        assert.ok(name !== '' && typeof system === 'string' && messages.every(({ text }) => text !== ''));
    }),
  );
});

test('of a conversation, its texts', () => {
  assert.deepEqual(
    messagesOf([
      { kind: 'user', text: 'a', attachments: [{ kind: 'file', name: 'b', fileId: 'c' }] },
      {
        kind: 'answer',
        blocks: [
          { kind: 'reasoning', text: 'd' },
          { kind: 'text', text: 'e' },
        ],
        results: {},
      },
      { kind: 'answer', blocks: [{ kind: 'call', key: '1', id: '1', name: 'f', arguments: '{}' }], results: {} },
    ]),
    [
      { role: 'user', text: 'a' },
      { role: 'assistant', text: 'e' },
    ],
  );
});
