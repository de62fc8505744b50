import type { WindowCount, WindowStore } from '../../../src/store/repositories/limit-windows.ts';

/** A store of counts that forgets nothing, and fails on demand. */
export class MemoryWindows implements WindowStore {
  readonly rows = new Map<string, WindowCount>();
  isBroken = false;

  load({ at, after }: { readonly at: number; readonly after?: WindowCount }): Promise<readonly WindowCount[]> {
    const rows = [...this.rows.values()].filter(({ startsAt, lengthMs }) => startsAt + lengthMs > at);
    return Promise.resolve(after === undefined ? rows : []);
  }

  add(changes: readonly WindowCount[]): Promise<readonly WindowCount[]> {
    if (this.isBroken) return Promise.reject(new Error('the store is away'));
    return Promise.resolve(
      changes.map((change) => {
        const name = `${change.subject} ${change.kind} ${change.lengthMs}`;
        const known = this.rows.get(name);
        const row =
          known?.startsAt === change.startsAt
            ? { ...known, used: known.used + change.used }
            : known === undefined || known.startsAt < change.startsAt
              ? change
              : known;
        this.rows.set(name, row);
        return row;
      }),
    );
  }
}
