import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Breaker } from '../../../src/engines/openai/breaker.ts';

describe('the breaker', () => {
  it('opens at the third failure in a row, for longer each time, up to a bound', () => {
    const breaker = new Breaker(1_000, 4_000);
    let nowMs = 0;
    for (let i = 0; i < 2; i++) {
      assert.ok(breaker.admit(nowMs));
      breaker.failed(nowMs, 0.5);
    }
    assert.equal(breaker.pauseLeftMs(nowMs), 0);
    assert.ok(breaker.admit(nowMs));
    breaker.failed(nowMs, 0.5);
    for (const pauseMs of [1_000, 2_000, 4_000, 4_000]) {
      assert.equal(breaker.pauseLeftMs(nowMs), pauseMs);
      assert.ok(!breaker.admit(nowMs + pauseMs - 1));
      nowMs += pauseMs;
      assert.ok(breaker.admit(nowMs), 'one may try');
      assert.ok(!breaker.admit(nowMs), 'only one');
      breaker.failed(nowMs, 0.5);
    }
  });

  it('closes at a success, and a try that said nothing makes room for another', () => {
    const breaker = new Breaker(1_000, 4_000);
    for (let i = 0; i < 3; i++) breaker.failed(0, 0.5);
    assert.ok(breaker.admit(1_000));
    breaker.abandoned();
    assert.ok(breaker.admit(1_000));
    breaker.succeeded();
    for (let i = 0; i < 10; i++) assert.ok(breaker.admit(1_000));
    assert.equal(breaker.pauseLeftMs(1_000), 0);
  });

  it('is not held open longer by requests that had begun before', () => {
    const breaker = new Breaker(1_000, 4_000);
    for (let i = 0; i < 50; i++) breaker.failed(0, 0.5);
    assert.equal(breaker.pauseLeftMs(0), 1_000);
  });
});
