/** What a form sends: what was changed, and nothing that it merely shows. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { changesOf } from '../../web/src/components/changes.ts';

describe('a form sends what was changed alone:', () => {
  const key = { name: 'a', limit_microcents: 1_500_001, allowed_models: ['b', 'a'], tags: [], expires_at: null, id: 7 };
  const { id: _, ...form } = key;
  for (const [change, sent] of [
    [{}, {}],
    [{ name: 'b' }, { name: 'b' }],
    [{ allowed_models: ['a', 'b'] }, {}],
    [{ allowed_models: null }, { allowed_models: null }],
    [
      { limit_microcents: null, expires_at: 5 },
      { limit_microcents: null, expires_at: 5 },
    ],
    [{ tags: ['x'] }, { tags: ['x'] }],
  ])
    test(JSON.stringify(change), () => assert.deepEqual(changesOf({ ...form, ...change }, key), sent));
});
