import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Breaker } from '../../../../src/inference/engines/openai/breaker.ts';

describe('the breaker', () => {
  it('opens at the third failure in a row, for longer after each look, up to a bound', () => {
    const breaker = new Breaker(1_000, 4_000);
    let nowMs = 0;
    for (let i = 0; i < 2; i++) breaker.failed(nowMs, 0.5);
    assert.ok(!breaker.isOpen);
    breaker.failed(nowMs, 0.5);
    for (const pauseMs of [1_000, 2_000, 4_000, 4_000]) {
      assert.ok(breaker.isOpen);
      assert.equal(breaker.pauseLeftMs(nowMs), pauseMs);
      nowMs += pauseMs;
      assert.equal(breaker.pauseLeftMs(nowMs), 0);
      assert.ok(breaker.isOpen, 'the end of the pause lets nobody through, a look must find the backend');
      breaker.lookFailed(nowMs, 0.5);
    }
  });

  it('closes when anybody hears of the backend, and forgets', () => {
    const breaker = new Breaker(1_000, 4_000);
    for (let i = 0; i < 3; i++) breaker.failed(0, 0.5);
    breaker.lookFailed(1_000, 0.5);
    breaker.succeeded();
    assert.ok(!breaker.isOpen);
    assert.equal(breaker.pauseLeftMs(1_000), 0);
    breaker.lookFailed(1_000, 0.5);
    assert.ok(!breaker.isOpen, 'a look that was still under way changes nothing');
    for (let i = 0; i < 3; i++) breaker.failed(2_000, 0.5);
    assert.equal(breaker.pauseLeftMs(2_000), 1_000);
  });

  it('is not held open longer by requests that had begun before', () => {
    const breaker = new Breaker(1_000, 4_000);
    for (let i = 0; i < 50; i++) breaker.failed(i, 0.5);
    assert.equal(breaker.pauseLeftMs(2), 1_000);
  });

  it('looks again within five seconds, however long a backend was away', () => {
    const breaker = new Breaker();
    for (let i = 0; i < 3; i++) breaker.failed(0, 1);
    for (let i = 0; i < 10; i++) breaker.lookFailed(0, 1);
    assert.ok(breaker.pauseLeftMs(0) > 4_000 && breaker.pauseLeftMs(0) <= 5_000);
  });

  it('spreads the looks of replicas by a fifth to either side', () => {
    for (const [random, pauseMs] of [
      [0, 800],
      [1, 1_200],
    ] as const) {
      const breaker = new Breaker(1_000, 4_000);
      for (let i = 0; i < 3; i++) breaker.failed(0, random);
      assert.equal(Math.round(breaker.pauseLeftMs(0)), pauseMs);
    }
  });
});
