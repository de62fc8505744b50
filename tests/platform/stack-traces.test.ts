import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runInThisContext } from 'node:vm';

/** Every test runs with `src/platform/stack-traces.ts`, as every entry of the program does. */
const placeOf = (error: Error): string => error.stack!.split('\n').find((line) => line.includes('    at '))!;

test('a stack names our files and lines, of functions and of what awaits them', async () => {
  const fall = async (): Promise<never> => {
    await Promise.resolve();
    throw new RangeError('with a reason');
  };
  const error = await fall().catch((caught: unknown) => caught as Error);
  assert.match(error.stack!, /^RangeError: with a reason\n/);
  assert.match(placeOf(error), /at fall \(.*[\\/]tests[\\/]platform[\\/]stack-traces\.test\.ts:11:11\)/);
});

test('what has no source of ours stays as it is', () => {
  assert.match(
    placeOf(runInThisContext('new Error("x")', { filename: 'some-script.js' }) as Error),
    /some-script\.js:1:1/,
  );
  let thrown: Error | undefined;
  try {
    JSON.parse('{');
  } catch (error) {
    thrown = error as Error;
  }
  assert.match(placeOf(thrown!), /at JSON\.parse \(<anonymous>\)/);
});

test('objects that are hostile or no errors have stacks too', () => {
  const hostile = new Error('hidden');
  Object.defineProperty(hostile, 'name', {
    get: () => {
      throw new Error('never seen');
    },
  });
  assert.match(hostile.stack!, /^Error\n {4}at .*stack-traces\.test\.ts/);
  const holder: { stack?: string } = {};
  Error.captureStackTrace(holder);
  assert.match(holder.stack!, /^Error\n {4}at .*stack-traces\.test\.ts/);
});
