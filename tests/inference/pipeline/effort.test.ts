import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import type { Model } from '../../../src/catalog/model.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { efforts } from '../../../src/generation/request.ts';
import type { Effort, RequestedEffort } from '../../../src/generation/request.ts';
import { nearestEffort, resolveEffort } from '../../../src/inference/pipeline/effort.ts';
import { capableModel, chatRoute, strictRoute } from './models.ts';

/** Columns: what none, low, medium, high, xhigh and max become on a model that lists the tiers of the row. */
const table: readonly (readonly [string, string])[] = [
  ['none', 'none none none none none none'],
  ['low', 'low low low low low low'],
  ['max', 'max max max max max max'],
  ['none low', 'none low low low low low'],
  ['none high', 'none high high high high high'],
  ['none max', 'none max max max max max'],
  ['low high', 'low low low high high high'],
  ['low max', 'low low low low max max'],
  ['none low medium', 'none low medium medium medium medium'],
  ['none low high', 'none low low high high high'],
  ['low medium high', 'low low medium high high high'],
  ['none low medium high', 'none low medium high high high'],
  // The example of §4.2.5(3): medium runs as low.
  ['none low high max', 'none low low high high max'],
  ['none medium xhigh', 'none medium medium medium xhigh xhigh'],
  ['none low xhigh', 'none low low xhigh xhigh xhigh'],
  ['none low medium high xhigh max', 'none low medium high xhigh max'],
];

for (const [listed, become] of table) {
  test(`decision 22: on ${listed}`, () => {
    const tiers = listed.split(' ') as Effort[];
    assert.equal(efforts.map((effort) => nearestEffort(effort, tiers)).join(' '), become);
    assert.equal(efforts.map((effort) => nearestEffort(effort, tiers.toReversed())).join(' '), become, 'in any order');
  });
}

test('every effort on every list: the nearest, ties down, none only for none or as the last resort', () => {
  const rank = (effort: Effort): number => efforts.indexOf(effort);
  for (let bits = 1; bits < 2 ** efforts.length; bits++) {
    const listed = efforts.filter((_, index) => (bits >> index) & 1);
    for (const wanted of efforts) {
      const got = nearestEffort(wanted, listed);
      assert.ok(listed.includes(got));
      if (wanted !== 'none' && got === 'none') assert.deepEqual(listed, ['none']);
      for (const other of listed) {
        if (other === got || (wanted !== 'none' && other === 'none')) continue;
        const further = Math.abs(rank(other) - rank(wanted)) - Math.abs(rank(got) - rank(wanted));
        assert.ok(
          further > 0 || (further === 0 && rank(other) > rank(got)),
          `${wanted} on ${listed.join()}: ${got}, not ${other}`,
        );
      }
    }
  }
});

const tier = (value: string): RequestedEffort => ({ type: 'tier', value, at: 'reasoning_effort' });
const turned = (on: boolean): RequestedEffort => ({ type: 'switch', on, at: 'thinking' });

const resolutions: readonly (readonly [string, RequestedEffort | undefined, readonly Effort[], Effort, Effort])[] = [
  ['nothing said: the default', undefined, ['none', 'low', 'high'], 'high', 'high'],
  ['nothing said, off by default', undefined, ['none', 'low'], 'none', 'none'],
  ['a tier', tier('low'), ['none', 'low', 'high'], 'high', 'low'],
  ['none turns it off', tier('none'), ['none', 'low'], 'low', 'none'],
  ['none on a model that always reasons (§4.2.5(6))', tier('none'), ['low', 'high'], 'high', 'low'],
  ['off', turned(false), ['none', 'low'], 'low', 'none'],
  ['off on a model that always reasons', turned(false), ['low', 'high'], 'high', 'low'],
  ['on: the default', turned(true), ['none', 'low', 'high'], 'high', 'high'],
  ['on where the default is off: the first tier above', turned(true), ['none', 'low', 'high'], 'none', 'low'],
  ['on where nothing can reason', turned(true), ['none'], 'none', 'none'],
  ['a tier where nothing can reason', tier('max'), ['none'], 'none', 'none'],
];

for (const [name, requested, listed, defaultEffort, expected] of resolutions) {
  test(`effort: ${name}`, () => {
    assert.equal(resolveEffort(requested, modelWith(listed, defaultEffort), chatRoute), expected);
  });
}

test('§4.2.5(3): what is no tier is refused on chat, by the name of its field, and off elsewhere', () => {
  const model = modelWith(['none', 'low'], 'low');
  for (const value of ['minimal', '', 'LOW', ' low', 'auto', '__proto__', 'constructor']) {
    for (const at of ['reasoning_effort', 'reasoning.effort']) {
      assert.throws(
        () => resolveEffort({ type: 'tier', value, at }, model, chatRoute),
        (error) =>
          error instanceof ApiError && error.code === 'unsupported_value' && error.status === 400 && error.param === at,
      );
    }
    assert.equal(resolveEffort(tier(value), model, strictRoute), 'none');
  }
});

test('whatever is asked for, the model runs at a tier that its card lists', () => {
  fc.assert(
    fc.property(
      fc.subarray([...efforts], { minLength: 1 }),
      fc.nat(),
      fc.option(fc.oneof(fc.constantFrom(...efforts), fc.string())),
      (listed, index, value) => {
        const model = modelWith(listed, listed[index % listed.length] ?? 'none');
        assert.ok(listed.includes(resolveEffort(value === null ? undefined : tier(value), model, strictRoute)));
        assert.ok(listed.includes(resolveEffort(turned(true), model, strictRoute)));
        assert.ok(listed.includes(resolveEffort(turned(false), model, strictRoute)));
      },
    ),
  );
});

const modelWith = (listed: readonly Effort[], defaultEffort: Effort): Model => ({
  ...capableModel,
  capabilities: { ...capableModel.capabilities, efforts: listed, defaultEffort },
});
