import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ApiError } from '../../../src/platform/errors.ts';
import type { CancelReason } from '../../../src/inference/pipeline/cancellation.ts';
import { Recording } from '../../../src/inference/pipeline/recording.ts';
import type { RecordingBudget } from '../../../src/inference/pipeline/recording.ts';
import { until } from '../../support/service.ts';

/** One answer, several readers (docs/decisions/008-idempotency.md): what each is handed, and what bounds the memory of it. */
function scene({ charactersMax = 100, ofAll = 1_000 } = {}) {
  const budget: RecordingBudget = { charactersMax: ofAll, characters: 0 };
  const abandoned: CancelReason[] = [];
  const recording = new Recording({
    charactersMax,
    budget,
    abandoned: (reason) => abandoned.push(reason),
    tooLate: () => new ApiError('http_409', 'too late'),
  });
  return { budget, abandoned, recording };
}

/** Reads until the end, or until it may not go on. */
function reader(recording: Recording, signal = new AbortController().signal) {
  const state = { text: '', gate: Promise.resolve(), ended: Promise.resolve('') };
  state.ended = recording
    .follow(signal, async (text) => {
      await state.gate;
      state.text += text;
      return true;
    })
    .then((last) => (state.text += last));
  return state;
}

test('every reader has the whole answer, whenever it comes', async () => {
  const { recording, budget, abandoned } = scene();
  const early = reader(recording);
  void recording.write('one ');
  const middle = reader(recording);
  void recording.write('two ');
  await until(() => early.text === 'one two ' && middle.text === 'one two ');
  const late = reader(recording);
  recording.end('three');
  const afterwards = reader(recording);
  for (const { ended } of [early, middle, late, afterwards]) assert.equal(await ended, 'one two three');
  assert.equal(recording.whole('three'), 'one two three');
  assert.deepEqual([budget.characters, abandoned], [0, []]);
});

test('a reader that is behind is handed many texts at once', async () => {
  const { recording } = scene({ charactersMax: 100_000, ofAll: 100_000 });
  for (let index = 0; index < 1_000; index++) void recording.write(`${index} `);
  recording.end('');
  let calls = 0;
  let text = '';
  await recording.follow(new AbortController().signal, (more) => {
    calls++;
    text += more;
    return true;
  });
  assert.equal(text, Array.from({ length: 1_000 }, (_, index) => `${index} `).join(''));
  assert.ok(calls < 10, `${calls} calls`);
});

test('beyond its bound the slowest reader holds the writer back, and nobody joins', async () => {
  const { recording, budget } = scene({ charactersMax: 10 });
  let open = (): void => {};
  const slow = reader(recording);
  slow.gate = new Promise<void>((resolve) => (open = resolve));
  const quick = reader(recording);
  assert.equal(recording.write('0123456789'), true);
  const held = recording.write('abc');
  assert.notEqual(held, true);
  await until(() => quick.text === '0123456789abc');
  let went = false;
  void Promise.resolve(held).then(() => (went = true));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(went, false);
  open();
  assert.equal(await held, true);
  assert.equal(recording.whole(''), undefined);
  const late = reader(recording);
  const refused = assert.rejects(late.ended, /too late/);
  recording.end('.');
  assert.deepEqual([await slow.ended, await quick.ended], ['0123456789abc.', '0123456789abc.']);
  await refused;
  assert.equal(budget.characters, 0);
});

test('others that hold all of the budget stop nobody who is read', async () => {
  const { recording, budget } = scene();
  budget.characters = 2_000;
  const one = reader(recording);
  for (const text of ['a', 'b', 'c']) assert.equal(await recording.write(text), true);
  recording.end('.');
  assert.equal(await one.ended, 'abc.');
  assert.equal(budget.characters, 2_000);
});

test('a reader that leaves frees the others; when the last one leaves the answer is abandoned, for its reason', async () => {
  const { recording, abandoned } = scene({ charactersMax: 1 });
  const [first, second] = [new AbortController(), new AbortController()];
  const slow = recording.follow(first.signal, () => new Promise(() => {}));
  slow.catch(() => {});
  const quick = reader(recording, second.signal);
  const left = assert.rejects(quick.ended, { code: 'invalid_api_key' });
  void recording.write('ab');
  await until(() => quick.text === 'ab');
  second.abort('revoked');
  await left;
  assert.deepEqual(abandoned, []);
  const gone = scene();
  const only = gone.recording.follow(new AbortController().signal, () => false);
  void gone.recording.write('a');
  assert.equal(await only, '');
  assert.deepEqual(gone.abandoned, ['client-left']);
});

test('all readers get how it failed, and later ones too', async () => {
  const { recording } = scene();
  const early = reader(recording);
  const reported = assert.rejects(early.ended, { code: 'backend_http_error' });
  void recording.write('one');
  recording.fail(new ApiError('backend_http_error', 'gone'));
  recording.end('never');
  await reported;
  await assert.rejects(reader(recording).ended, { code: 'backend_http_error' });
});
