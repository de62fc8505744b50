/** Collecting on one core, seen in what V8 itself prints of its threads. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

const module = new URL('../../src/service/one-core.js', import.meta.url).href;

/** What V8 says of marking on threads of its own while a program makes 100 MB that stay. */
function marking(cores: number): string {
  const program = `
    const { collectAlone } = await import(${JSON.stringify(module)});
    if (collectAlone(${cores}) !== ${cores === 1}) throw new Error('it says something else');
    const kept = [];
    for (let index = 0; index < 2_000_000; index++) {
      kept.push({ index, text: 'text ' + index });
      if (index % 10_000 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    if (kept.length === 0) throw new Error('nothing was kept');`;
  const words = ['--trace-concurrent-marking', '--trace-gc', '--input-type=module', '--eval', program];
  const { status, stdout, stderr } = spawnSync(process.execPath, words, { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  assert.match(stdout, /Mark-Compact/);
  return stdout;
}

test('with one core nothing is marked beside the thread that serves; with two it is', () => {
  assert.doesNotMatch(marking(1), /concurrent marking/i);
  assert.match(marking(2), /concurrent marking/i);
});
