import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Mailbox } from '../../../src/engines/llama/mailbox.ts';
import { Suspects } from '../../../src/engines/llama/suspects.ts';
import type { GenerationEvent } from '../../../src/generation/event.ts';

const text = (value: string): GenerationEvent => ({ type: 'text', choice: 0, text: value });
const usage = (completionTokens: number): GenerationEvent => ({
  type: 'usage',
  usage: { promptTokens: 1, cachedTokens: 0, completionTokens, reasoningTokens: 0 },
});
const late = () => new Error('late');

describe('a mailbox', () => {
  test('gives everything at once, with the latest usage only', async () => {
    const mailbox = new Mailbox();
    mailbox.put([text('a'), usage(1)], 1, false);
    mailbox.put([text('b'), usage(2)], 1, true);
    assert.deepEqual(await mailbox.take(1000, late), {
      events: [text('a'), text('b'), usage(2)],
      tokens: 2,
      last: true,
    });
  });

  test('wakes its reader for letters and for failures', async () => {
    const mailbox = new Mailbox();
    const first = mailbox.take(60_000, late);
    mailbox.put([text('a')], 1, false);
    assert.equal((await first).events.length, 1);
    const second = mailbox.take(60_000, late);
    mailbox.fail(new Error('gone'));
    await assert.rejects(second, /gone/);
  });

  test('drops what was not read when it fails, and keeps to the first failure', async () => {
    const mailbox = new Mailbox();
    mailbox.put([text('a')], 1, true);
    mailbox.fail(new Error('first'));
    mailbox.fail(new Error('second'));
    mailbox.put([text('b')], 1, false);
    await assert.rejects(mailbox.take(1000, late), /first/);
  });

  test('is late when nothing comes in time', async () => {
    await assert.rejects(new Mailbox().take(1, late), /late/);
  });
});

describe('suspects', () => {
  test('are condemned after two deaths and acquitted by one good end', () => {
    const suspects = new Suspects();
    const poison = [{ type: 'texts', prompts: ['poison'] }];
    suspects.accuse([poison, structuredClone(poison)]);
    assert.equal(suspects.condemns(poison), false);
    suspects.accuse([structuredClone(poison)]);
    assert.equal(suspects.condemns(poison), true);
    assert.equal(suspects.condemns(['other']), false);
    suspects.acquit(poison);
    assert.equal(suspects.condemns(poison), false);
  });

  test('are at most 256', () => {
    const suspects = new Suspects();
    for (let index = 0; index < 300; index++) for (let death = 0; death < 2; death++) suspects.accuse([index]);
    assert.equal(suspects.condemns(255), true);
    assert.equal(suspects.condemns(256), false);
  });
});
