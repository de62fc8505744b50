/** Processes that die at any of their calls of the store, before it is carried out or before its answer arrives. */
import type { AccountLedger } from '../../src/store/ledger.ts';
import type { Repositories } from '../../src/store/repositories/repositories.ts';

export interface MortalStore {
  readonly ledger: AccountLedger;
  readonly repositories: Repositories;
  now(): number;
}

class Death extends Error {}

/** The same store until its `calls`th call; from then on nothing answers. `carriedOut`: that call still happens. */
function mortal(
  store: MortalStore,
  calls: number,
  carriedOut: boolean,
): { readonly store: MortalStore; readonly died: () => boolean } {
  let left = calls;
  const wrap = <Part extends object>(part: Part): Part =>
    new Proxy(part, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== 'function') return value;
        return async (...args: unknown[]): Promise<unknown> => {
          left--;
          if (left < 0 || (left === 0 && !carriedOut)) throw new Death();
          const answer: unknown = await (value as (...args: unknown[]) => unknown).apply(target, args);
          if (left === 0) throw new Death();
          return answer;
        };
      },
    });
  return {
    store: { ledger: wrap(store.ledger), repositories: wrap(store.repositories), now: () => store.now() },
    died: () => left <= 0,
  };
}

/** Runs `work` with a death at each of its calls in turn, then once more without; ends when a run has outlived them all. */
export async function atEachCall<Scene>(
  living: MortalStore,
  prepare: () => Promise<Scene>,
  work: (store: MortalStore, scene: Scene) => Promise<void>,
  check: (scene: Scene, where: string) => Promise<void>,
): Promise<number> {
  for (let calls = 1; ; calls++) {
    let outlived = false;
    for (const carriedOut of [false, true]) {
      const scene = await prepare();
      const { store, died } = mortal(living, calls, carriedOut);
      await work(store, scene).catch((error: unknown) => {
        if (!died()) throw error;
      });
      outlived = !died();
      await work(living, scene);
      await work(living, scene);
      await check(scene, `death at call ${calls}, ${carriedOut ? 'after' : 'before'} it`);
    }
    if (outlived) return calls;
  }
}
