import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Breaker } from '../../../../src/inference/engines/openai/breaker.ts';

const pauseMs = 500;

describe('the breaker', () => {
  it('opens at the third failure in a row, and stays open until a look finds the backend', () => {
    const breaker = new Breaker();
    let nowMs = 0;
    for (let i = 0; i < 2; i++) breaker.failed(nowMs, 0.5);
    assert.ok(!breaker.isOpen);
    breaker.failed(nowMs, 0.5);
    for (let looks = 0; looks < 10; looks++) {
      assert.ok(breaker.isOpen);
      assert.equal(breaker.pauseLeftMs(nowMs), pauseMs);
      nowMs += pauseMs;
      assert.equal(breaker.pauseLeftMs(nowMs), 0);
      assert.ok(breaker.isOpen, 'the end of the pause lets nobody through, a look must find the backend');
      breaker.lookFailed(nowMs, 0.5);
    }
  });

  it('closes when anybody hears of the backend, and forgets', () => {
    const breaker = new Breaker();
    for (let i = 0; i < 3; i++) breaker.failed(0, 0.5);
    breaker.lookFailed(pauseMs, 0.5);
    breaker.succeeded();
    assert.ok(!breaker.isOpen);
    assert.equal(breaker.pauseLeftMs(pauseMs), 0);
    breaker.lookFailed(pauseMs, 0.5);
    assert.ok(!breaker.isOpen, 'a look that was still under way changes nothing');
    for (let i = 0; i < 3; i++) breaker.failed(2_000, 0.5);
    assert.equal(breaker.pauseLeftMs(2_000), pauseMs);
  });

  it('is not held open longer by requests that had begun before', () => {
    const breaker = new Breaker();
    for (let i = 0; i < 50; i++) breaker.failed(i, 0.5);
    assert.equal(breaker.pauseLeftMs(2), pauseMs);
  });

  it('looks again within 0.6 s, and spreads the looks of replicas by a fifth to either side', () => {
    for (const [random, jitteredMs] of [
      [0, 400],
      [1, 600],
    ] as const) {
      const breaker = new Breaker();
      for (let i = 0; i < 3; i++) breaker.failed(0, random);
      assert.equal(Math.round(breaker.pauseLeftMs(0)), jitteredMs);
    }
  });
});
