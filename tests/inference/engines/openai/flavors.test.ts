import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deafServers } from '../../../../src/config/sections/models.ts';
import { flavorNames } from '../../../../src/generation/flavor-names.ts';
import { flavors } from '../../../../src/inference/engines/openai/flavors/flavors.ts';

/** The configuration may not import engines, so it says for itself which fields a kind of server does not take. */
test('the configuration refuses the sampling defaults that a kind of server would not be sent, and no others', () => {
  // A plain server is sent what `forward` names, and TEI writes no text.
  for (const name of flavorNames.filter((flavor) => flavor !== 'openai' && flavor !== 'tei')) {
    const { topK, minP, repetitionPenalty } = flavors[name];
    const fields = { top_k: topK, min_p: minP, repetition_penalty: repetitionPenalty };
    const unsent = Object.entries(fields).flatMap(([field, sentAs]) => (sentAs === undefined ? [field] : []));
    assert.deepEqual(deafServers.find(({ flavor }) => flavor === name)?.to ?? [], unsent, name);
  }
});
