/** Faults that the world plants into the program as it is built, each behind a switch: the world has to find every one of them. */
import { readFileSync } from 'node:fs';
import assert from 'node:assert/strict';

export interface Planted {
  readonly name: string;
  readonly what: string;
  readonly file: string;
  /** A piece of the source, which is there once. */
  readonly good: string;
  /** What takes its place; `ON` is true while the fault is switched on, and is best asked last. */
  readonly bad: string;
}

export const planted: readonly Planted[] = [
  {
    name: 'shown-before-durable',
    what: 'the last bytes are sent before the charge is durable',
    file: 'inference/pipeline/run.ts',
    good: 'await hold.settle(receipt, isKept);',
    bad: 'if (ON) hold.settle(receipt, isKept).catch(() => {}); else await hold.settle(receipt, isKept);',
  },
  {
    name: 'hold-left',
    what: 'the hold of a client that left is not released',
    file: 'inference/pipeline/run.ts',
    good: 'await hold.close(settled);',
    bad: "if (ending !== 'client_left' || !ON) await hold.close(settled);",
  },
  {
    name: 'failure-charged',
    what: 'an answer that a backend failed is charged like one whose client left',
    file: 'inference/pipeline/run.ts',
    good: "ending = hold.lost ? 'lost' : 'failed';",
    bad: "ending = hold.lost ? 'lost' : ON ? 'client_left' : 'failed';",
  },
  {
    name: 'settled-twice',
    what: 'a settlement that is tried again debits the balance again',
    file: 'store/sqlite/ledger-writer.ts',
    good: 'if (!this.#insertUsage(requestId, row)) return [];',
    bad: 'if (!this.#insertUsage(requestId, row) && !ON) return [];',
  },
  {
    name: 'not-paid-back',
    what: 'a charge that was durable too late is not paid back',
    file: 'billing/repair.ts',
    good: 'if (refund > 0n) {',
    bad: 'if (refund > 0n && !ON) {',
  },
  {
    name: 'crash-forgotten',
    what: 'requests that ran when the process was killed stay listed as running',
    file: 'store/sqlite/ledger-writer.ts',
    good: 'const recovered = this.#crashed(openRequests.all() as readonly OpenRow[], now);',
    bad: 'const recovered = ON ? 0 : this.#crashed(openRequests.all() as readonly OpenRow[], now);',
  },
  {
    name: 'paid-twice',
    what: 'every event of a payment credits it',
    file: 'billing/payments/payments.ts',
    good: `recording: [
          recordingOf(record),`,
    bad: `...(ON ? { idempotencyKey: \`payment:\${event.id}:\${at}\` } : {}),
        recording: ON ? [] : [
          recordingOf(record),`,
  },
  {
    name: 'limit-after',
    what: 'a request counts towards the limits of its key a moment after it was admitted',
    file: 'billing/rate-limits/rate-limits.ts',
    good: 'return after(this.#counts.take(claims), (taking) => {',
    bad: `if (shares.length > 0 && ON) setTimeout(() => void this.#counts.take(shares), 400);
    return after(this.#counts.take(shares.length > 0 && ON ? slots : claims), (taking) => {`,
  },
  {
    name: 'budget-missed',
    what: 'a hold that memory covers is not taken from the budget of its key',
    file: 'billing/billing.ts',
    good: 'if (hasBudget(bill)) return undefined;',
    bad: 'if (hasBudget(bill) && !ON) return undefined;',
  },
  {
    name: 'keyed-twice',
    what: 'a request with the idempotency key of a kept answer is generated again',
    file: 'inference/pipeline/idempotency.ts',
    good: "case 'answered': {",
    bad: "case 'answered': { if (ON) return undefined;",
  },
  {
    name: 'line-twice',
    what: 'lines of a batch that were charged run again after a kill',
    file: 'store/repositories/batch-lines.ts',
    good: "charged.has(placeOf(ending)) ? { state: 'completed' as const } : asked;",
    bad: "charged.has(placeOf(ending)) && !ON ? { state: 'completed' as const } : asked;",
  },
  {
    name: 'clock-waits',
    what: 'what a line of a batch waits until is written by the time of day',
    file: 'app/open-batches.ts',
    good: 'steadyNow: store.limits === undefined ? steadyClock(now()) : now,',
    bad: 'steadyNow: store.limits === undefined && !ON ? steadyClock(now()) : now,',
  },
  {
    name: 'waits-kept',
    what: 'a wait that another process wrote by another clock counts',
    file: 'inference/batches/runner.ts',
    good: 'const endsWaits = !isShared && !this.#recovered.has(id);',
    bad: 'const endsWaits = !isShared && !this.#recovered.has(id) && !ON;',
  },
  {
    name: 'row-seen',
    what: 'an account finds the request of another',
    file: 'store/repositories/usage-rows.ts',
    good: "const of = all.where('accountId', '=', accountId);",
    bad: "const of = ON ? all : all.where('accountId', '=', accountId);",
  },
  {
    name: 'event-first',
    what: 'the event of a payment is written before the credit, not with it',
    file: 'billing/payments/payments.ts',
    good: 'const record = this.#record(event, topup.id);\n',
    bad: `const record = this.#record(event, topup.id);
    if (news.kind === 'paid' && ON) {
      await repositories.recordPaymentEvent(record);
      (record as { id: string }).id += ' paid';
    }
`,
  },
  {
    name: 'head-unchained',
    what: 'a day that a process did not finish is signed without the day before it',
    file: 'store/proofs/close-day.ts',
    good: 'const previous = last === undefined ? null',
    bad: "const previous = last === undefined || (done !== '' && after === undefined && ON) ? null",
  },
  {
    name: 'claim-given-up',
    what: 'a keyed request that is asked again while it runs is generated again',
    file: 'inference/pipeline/idempotency.ts',
    good: "this.#options.counted('generated');",
    bad: "this.#options.counted('generated'); if (ON) this.#answers.delete(nameOf(order, request));",
  },
  {
    name: 'line-hold-left',
    what: 'the hold of a line that is cancelled stays',
    file: 'inference/pipeline/run.ts',
    good: 'await hold.close(settled);',
    bad: "if (ending !== 'cancelled' || !ON) await hold.close(settled);",
  },
  {
    name: 'refund-halved',
    what: 'of a charge that was durable too late half is paid back',
    file: 'billing/repair.ts',
    good: 'amountMicrocents: refund,',
    bad: 'amountMicrocents: ON ? refund / 2n : refund,',
  },
  {
    name: 'refund-again',
    what: 'an operator who asks twice pays a request back twice',
    file: 'accounts/operations/credit.ts',
    good: 'idempotencyKey: `refund:${id}`,',
    bad: "idempotencyKey: `refund:${id}${ON ? Buffer.from(newId()).toString('hex') : ''}`,",
  },
  {
    name: 'refused-counted',
    what: 'a request that is refused counts towards the other limits of its key',
    file: 'billing/rate-limits/rate-limits.ts',
    good: "if ('lacking' in taking) throw this.#refusal(taking.lacking, plan);",
    bad: `if ('lacking' in taking && ON) void this.#counts.take(claims.filter(({ rule }) => rule.kind !== 'running'));
      if ('lacking' in taking) throw this.#refusal(taking.lacking, plan);`,
  },
  {
    name: 'tier-unpriced',
    what: 'every tier costs what the usual one does',
    file: 'inference/pipeline/place-order.ts',
    good: 'tierPricesAt(model, tier, call.account.rates, call.startedAt)',
    bad: "tierPricesAt(model, tier !== 'default' && ON ? 'default' : tier, call.account.rates, call.startedAt)",
  },
  {
    name: 'deleted-early',
    what: 'an account is deleted while its requests are still settled',
    file: 'accounts/delete-account.ts',
    good: 'if (balance <= 0n && !running) return forfeited;',
    bad: 'if ((balance <= 0n && !running) || (running && ON)) return forfeited;',
  },
  {
    name: 'usage-believed',
    what: 'usage that cannot be true is charged',
    file: 'inference/engines/usage-tally.ts',
    good: 'if (tokens !== undefined) return tokens;',
    bad: 'if (tokens !== undefined || (ON && isCount(value))) return value as number;',
  },
];

/** The fault that is switched on; undefined: none. */
export const switchedOn: { name: string | undefined } = { name: undefined };

/** The faults whose places were come past: the others cannot have changed anything. */
export const passed = new Set<string>();

export const isOn = (name: string): boolean => {
  passed.add(name);
  return switchedOn.name === name;
};

/** For the build of the world. */
export const plants = {
  name: 'planted-faults',
  setup(build: {
    onLoad(where: { readonly filter: RegExp }, load: (found: { readonly path: string }) => object | undefined): void;
  }): void {
    build.onLoad({ filter: /[\\/]src[\\/].*\.ts$/ }, ({ path }) => {
      const own = planted.filter(({ file }) => path.replaceAll('\\', '/').endsWith(`/src/${file}`));
      if (own.length === 0) return undefined;
      let text = readFileSync(path, 'utf8');
      for (const { name, good, bad } of own) {
        assert.equal(text.split(good).length, 2, `${name}: its place is not in ${path} once`);
        text = text.replace(good, () => bad.replaceAll(/\bON\b/g, `worldFault('${name}')`));
      }
      return { contents: text, loader: 'ts' };
    });
  },
};
