import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Channel } from '../../../../src/inference/engines/llama/channel.ts';
import { CrashQuarantine } from '../../../../src/inference/engines/llama/crash-quarantine.ts';
import type { GenerationEvent } from '../../../../src/generation/event.ts';

const text = (value: string): GenerationEvent => ({ type: 'text', choice: 0, text: value });
const usage = (completionTokens: number): GenerationEvent => ({
  type: 'usage',
  usage: { promptTokens: 1, cachedTokens: 0, completionTokens, reasoningTokens: 0 },
});
const late = () => new Error('late');
const within = (ms: number) => {
  const atMs = performance.now() + ms;
  return () => atMs;
};

describe('a channel', () => {
  test('gives everything at once, with the latest usage only', async () => {
    const channel = new Channel();
    channel.put([text('a'), usage(1)], 1, false);
    channel.put([text('b'), usage(2)], 1, true);
    assert.deepEqual(await channel.take(within(1000), late), {
      events: [text('a'), text('b'), usage(2)],
      tokens: 2,
      last: true,
    });
  });

  test('wakes its reader for letters and for failures', async () => {
    const channel = new Channel();
    const first = channel.take(within(60_000), late);
    channel.put([text('a')], 1, false);
    assert.equal((await first).events.length, 1);
    const second = channel.take(within(60_000), late);
    channel.fail(new Error('gone'));
    await assert.rejects(second, /gone/);
  });

  test('drops what was not read when it fails, and keeps to the first failure', async () => {
    const channel = new Channel();
    channel.put([text('a')], 1, true);
    channel.fail(new Error('first'));
    channel.fail(new Error('second'));
    channel.put([text('b')], 1, false);
    await assert.rejects(channel.take(within(1000), late), /first/);
  });

  test('is late when nothing comes in time', async () => {
    await assert.rejects(new Channel().take(within(1), late), /late/);
  });

  test('is not late as long as the time is put off', async () => {
    const channel = new Channel();
    let asked = 0;
    // Each time it would be over something has happened meanwhile.
    const taken = channel.take(() => {
      if (++asked === 5) channel.put([text('a')], 1, true);
      return performance.now() + 1;
    }, late);
    assert.equal((await taken).events.length, 1);
    assert.equal(asked, 5);
  });
});

describe('quarantined prompts', () => {
  test('are kept out after two crashes and cleared by one good end', () => {
    const quarantine = new CrashQuarantine();
    const poison = [{ type: 'texts', prompts: ['poison'] }];
    quarantine.record([poison, structuredClone(poison)]);
    assert.equal(quarantine.isQuarantined(poison), false);
    quarantine.record([structuredClone(poison)]);
    assert.equal(quarantine.isQuarantined(poison), true);
    assert.equal(quarantine.isQuarantined(['other']), false);
    quarantine.clear(poison);
    assert.equal(quarantine.isQuarantined(poison), false);
  });

  test('are at most 256', () => {
    const quarantine = new CrashQuarantine();
    for (let index = 0; index < 300; index++) for (let death = 0; death < 2; death++) quarantine.record([index]);
    assert.equal(quarantine.isQuarantined(255), true);
    assert.equal(quarantine.isQuarantined(256), false);
  });
});
