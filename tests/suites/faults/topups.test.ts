/** kill -9 while top-ups are made and paid: each is credited once, whatever was on its way (money.md, M1; reliability S1). */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { mulberry32 } from '../../support/random.ts';
import { noFeatures, scriptedModel, TestService, until } from '../../support/service.ts';
import { Visitor } from '../../support/visitor.ts';

const rounds = 8;
const topupsOfRound = 6;
const cents = 300;
/** The longest that a round runs before the kill. */
const runMsMax = 400;
const waitMs = 60_000;
const outcomes = ['success', 'duplicate', 'delay'] as const;

test(`kill -9 while top-ups are paid, ${rounds} times: each is credited once`, async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.diagnostic(`seed ${seed}`);
  const random = mulberry32(seed);
  const config = scriptedModel('- { say: [{ text: "one" }] }', { settings: noFeatures });
  const service = new TestService({ config, firstCreditCents: '0' });
  t.after(() => service.dispose());
  await service.start();
  const person = new Visitor(service);
  await person.becomeOwner();
  // Management keys do not prove again who they are, and outlive the process as sessions do.
  const made = await person.ask('POST', '/v1/keys', { name: 'program', type: 'management', role: 'admin' });
  const program = new Visitor(service, String(made.body.key));

  const names: string[] = [];
  for (let round = 0; round < rounds; round++) {
    const own = Array.from({ length: topupsOfRound }, (_, index) => `round-${round}-${index}`);
    names.push(...own);
    // What is on its way when the process dies fails; what was answered before does not.
    const paying = Promise.allSettled(
      own.map(async (name, index) => {
        const topup = await program.ask('POST', '/v1/credits/topups', { amount_cents: cents }, name);
        if (topup.status !== 201) return;
        await program.play(String(topup.body.checkout_url), outcomes[index % outcomes.length]!);
      }),
    );
    await new Promise((resolve) => setTimeout(resolve, random() * runMsMax));
    await service.stop('SIGKILL');
    await paying;
    await service.start();
  }

  // A client that was cut off asks again with the same key, and pays what is not paid yet.
  const ids = new Set<string>();
  for (const name of names) {
    const topup = await program.ask('POST', '/v1/credits/topups', { amount_cents: cents }, name);
    assert.equal(topup.status, 201, JSON.stringify(topup.body));
    const { id, checkout_url: url } = topup.body as { id: string; checkout_url: string };
    ids.add(id);
    const status = async (): Promise<string> => String((await program.get(`/v1/credits/topups/${id}`)).status);
    await until(async () => {
      const now = await status();
      if (now === 'paid') return true;
      // Refused where the page has been paid already, and its message is still on its way.
      await program.play(url, 'success').catch(() => {});
      return (await status()) === 'paid';
    }, waitMs);
  }
  assert.equal(ids.size, names.length, 'a key makes one top-up');
  const credit = await program.get('/v1/credits');
  assert.equal(credit.balance_microcents, names.length * cents * 1_000_000);
  assert.equal((await program.get('/v1/ledger?limit=100')).data.length, names.length);
  await service.verify();
});
