/** Which backends may be closed after a reload: those that no request can reach any more. */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Catalog } from '../../../src/catalog/catalog.ts';
import { openBackendPool } from '../../../src/inference/pipeline/backend-pool.ts';
import type { Backend } from '../../../src/inference/pipeline/backend-pool.ts';
import { RuntimeConfigs } from '../../../src/inference/pipeline/runtime-config.ts';
import type { Lease, RequestLimits, RuntimeConfig } from '../../../src/inference/pipeline/runtime-config.ts';
import { defaultFetchSettings } from '../../support/image-settings.ts';

const limits: RequestLimits = {
  primeMs: 1,
  keepAliveMs: 1,
  readerStallMs: 1,
  bodyBytesMax: 1,
  batchFileBytesMax: 1,
  fileBytesMax: 1,
  requestDeadlineMs: 1,
};
const modelIds = ['a', 'b'];
// Only their identity matters here.
const pool = Array.from({ length: 6 }, (_, index) => ({ label: `${index}` }) as Backend);

const runtimeConfigOf = (choice: readonly number[]): RuntimeConfig => ({
  catalog: new Catalog([]),
  limits,
  images: defaultFetchSettings,
  trustedProxies: undefined,
  allowedOrigins: { listed: new Set(), hasConsoleBeside: false },
  pools: new Map(
    modelIds.map((id, index) => [
      id,
      openBackendPool(
        pool.filter((_, which) => which % 2 === index && choice.includes(which)),
        { waitMaxMs: 0 },
      ),
    ]),
  ),
});

const backendsOf = ({ pools: places }: RuntimeConfig): readonly Backend[] =>
  [...places.values()].flatMap(({ backends }) => backends);
const labels = (backends: readonly Backend[]): readonly string[] => backends.map(({ label }) => label).sort();

test('whatever is leased, narrowed, swapped and released: a backend is let go exactly when nothing can reach it', () => {
  const choice = fc.subarray([0, 1, 2, 3, 4, 5]);
  const step = fc.oneof(
    fc.record({ type: fc.constant('swap' as const), choice }),
    fc.record({ type: fc.constant('lease' as const) }),
    fc.record({
      type: fc.constant('narrow' as const),
      which: fc.nat(),
      models: fc.subarray([...modelIds], { minLength: 1 }),
    }),
    fc.record({ type: fc.constant('release' as const), which: fc.nat() }),
  );
  fc.assert(
    fc.property(choice, fc.array(step, { maxLength: 60 }), (first, steps) => {
      const closed = new Set<Backend>();
      const runtimeConfigs = new RuntimeConfigs(runtimeConfigOf(first), (backend) => {
        assert.ok(!closed.has(backend), 'once');
        closed.add(backend);
      });
      const leases: { lease: Lease; models: readonly string[] | undefined }[] = [];
      const left = new Set<Backend>();
      const reach = ({ lease, models = modelIds }: (typeof leases)[number]): readonly Backend[] =>
        models.flatMap((id) => lease.poolOf(id).backends);
      for (const taken of steps) {
        if (taken.type === 'swap') {
          const before = backendsOf(runtimeConfigs.current);
          // A backend that was let go is never used again: the same configuration opens another one.
          const next = runtimeConfigOf(
            taken.choice.filter((which) => before.includes(pool[which]!) || !left.has(pool[which]!)),
          );
          const after = backendsOf(next);
          for (const backend of before) if (!after.includes(backend)) left.add(backend);
          runtimeConfigs.swap(next);
        } else if (taken.type === 'lease') {
          leases.push({ lease: runtimeConfigs.lease(), models: undefined });
          assert.equal(leases.at(-1)?.lease.runtimeConfig, runtimeConfigs.current);
        } else if (leases.length > 0) {
          const index = taken.which % leases.length;
          const one = leases[index]!;
          if (taken.type === 'release') {
            leases.splice(index, 1);
            one.lease.release();
          } else if (one.models === undefined) {
            one.models = taken.models;
            const [model, ...others] = taken.models;
            one.lease.narrow(model!, others.length === 0 ? undefined : others);
          }
        }
        const reachable = new Set(leases.flatMap(reach));
        const expected = [...left].filter((backend) => !reachable.has(backend));
        assert.deepEqual(labels([...closed]), labels(expected));
        assert.equal(runtimeConfigs.leaving, left.size - closed.size);
      }
    }),
  );
});
