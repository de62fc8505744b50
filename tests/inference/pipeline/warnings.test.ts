import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { RequestedEffort, Sampling } from '../../../src/generation/request.ts';
import { warningsOf } from '../../../src/inference/pipeline/warnings.ts';
import { warningHeader, warningTable, type Warning } from '../../../src/platform/warnings.ts';

const sampling = (fields: Partial<Sampling>): Sampling => fields as Sampling;
const tier = (value: string): RequestedEffort => ({ type: 'tier', value, at: 'reasoning_effort' });
const thinks = (on: boolean): RequestedEffort => ({ type: 'switch', on, at: 'thinking' });
const tagged = { 'service-request-tag': 'nightly' };

/** What is sent, to a model of which kind of sampling that runs at which effort, and what is reported. */
const rows: readonly [
  Parameters<typeof warningsOf>[0],
  Parameters<typeof warningsOf>[1],
  Parameters<typeof warningsOf>[2],
  Parameters<typeof warningsOf>[3],
  readonly Warning[] | undefined,
][] = [
  [
    { sampling: sampling({ temperature: 0 }), choices: 2, effort: undefined },
    { sampling: 'honor' },
    'none',
    {},
    undefined,
  ],
  [{ sampling: sampling({ topK: 4 }), choices: 2, effort: undefined }, { sampling: 'ignore' }, 'low', {}, undefined],
  [
    { sampling: sampling({ temperature: 0 }), choices: 2, effort: undefined },
    { sampling: 'ignore' },
    'none',
    {},
    ['sampling_ignored'],
  ],
  [
    { sampling: sampling({ frequencyPenalty: 1 }), choices: 2, effort: undefined },
    { sampling: 'fixed' },
    'none',
    {},
    ['sampling_ignored', 'n_ignored'],
  ],
  [{ sampling: sampling({}), choices: 1, effort: tier('high') }, { sampling: 'fixed' }, 'high', {}, undefined],
  [{ sampling: sampling({}), choices: 1, effort: tier('high') }, { sampling: 'fixed' }, 'low', {}, ['effort_changed']],
  [{ sampling: sampling({}), choices: 1, effort: thinks(true) }, { sampling: 'honor' }, 'low', {}, undefined],
  [{ sampling: sampling({}), choices: 1, effort: thinks(true) }, { sampling: 'honor' }, 'none', {}, ['effort_changed']],
  [{ sampling: sampling({}), choices: 1, effort: thinks(false) }, { sampling: 'honor' }, 'low', {}, ['effort_changed']],
  [{ sampling: sampling({}), choices: 1, effort: undefined }, { sampling: 'honor' }, 'none', tagged, ['tags_ignored']],
  [
    { sampling: sampling({}), choices: 1, effort: undefined },
    { sampling: 'honor', dedicatedTo: new Set(['a']) },
    'none',
    tagged,
    undefined,
  ],
];

test('a request is told what its model leaves out, and nothing else', () => {
  for (const [asked, model, effort, headers, expected] of rows)
    assert.deepEqual(warningsOf(asked, model, effort, headers), expected, JSON.stringify([asked, model, effort]));
});

test('every warning is a list item of RFC 9651, with a text that a string may have', () => {
  for (const code of Object.keys(warningTable) as Warning[])
    assert.match(warningHeader([code]), /^[a-z][a-z_]*;text="[ !#-[\]-~]+"$/);
  assert.equal(warningHeader(['n_ignored', 'tags_ignored']).split('", ').length, 2);
});
