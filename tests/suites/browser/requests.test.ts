/** From a figure to the list behind it and to a receipt: the same money everywhere, and nothing of what strangers wrote takes effect. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { closeConnection, openConnection } from '../../../src/store/sqlite/connection.ts';
import { hostileName } from '../../support/hostile.ts';
import { scriptedModel, TestService, until } from '../../support/service.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { looks, openBrowser, Person } from './browser.ts';

const service = new TestService({ config: '' });
/** Markup, a long word, and the other direction of writing. */
const tag = 'nightly-batch-of-the-whole-shelf';
const answered = 4;
/** Its server always fails, so `demo` serves it. */
const asked = 'demo-large';
const dayMs = 86_400_000;
const keptSince = Math.floor(Date.now() / dayMs - 40) * dayMs;

let visitor: Visitor;
before(async () => {
  service.writeConfig(
    `server:\n  inference: { port: 0 }\n  account: { port: 0 }\n${scriptedModel(
      '- { when: { last_text: fall }, say: [{ text: "It" }], fault: { after_tokens: 0, type: error } }\n- { say: [{ text: "It is " }, { text: "Paris." }] }',
    )}
        name: first
        rank: 1
      - engine: scripted
        name: second
        rank: 2
        scripts: [{ say: [{ text: "Here." }] }]
  - id: ${asked}
    context_length: 8192
    pricing: { input_cents_per_million: 50, output_cents_per_million: 200 }
    fallback: [ demo ]
    backends: [ { engine: scripted, scripts: [ { fault: { after_tokens: 0, type: error }, say: [ { text: "It" } ] } ] } ]
`,
  );
  await service.start();
  visitor = new Visitor(service);
  await visitor.becomeOwner();
  const made = await visitor.ask('POST', '/v1/keys', { name: hostileName, tags: [tag] });
  assert.equal(made.status, 201, JSON.stringify(made.body));
  for (let at = 0; at < answered; at++)
    await ask(String(made.body.key), at === 0 ? 'fall' : `hi ${at}`, at === 1 ? asked : 'demo');
  // Its requests have its name all the same.
  assert.equal((await visitor.ask('DELETE', `/v1/keys/${made.body.data.id}`)).status, 200);
  // As `tokenhouse db prune` does, which needs requests that are older.
  await service.stop();
  const connection = openConnection(join(service.folder, 'data', 'tokenhouse.db'));
  connection.exec(`update usage_retention set kept_since = ${keptSince}`);
  closeConnection(connection);
  await service.start();
});
after(() => service.dispose());

async function ask(key: string, content: string, model: string): Promise<void> {
  const answer = await fetch(`${service.url}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      'x-request-id': '<script>alert(1)</script>',
    },
    body: JSON.stringify({ model, messages: [{ role: 'user', content }] }),
  });
  assert.equal(answer.status, 200, await answer.text());
}

/** In microcents, of an amount that is shown exactly. */
const amountOf = (shown: string): bigint => BigInt(Math.round(Number(shown.replaceAll(/[^\d.]/g, '')) * 1e8));

for (const look of looks.filter(({ name }) => name === 'light, 1280 px' || name === 'dark, 360 px'))
  test(`a figure opens its list, and the list its receipts: ${look.name}`, async (t) => {
    const person = await Person.at(await openBrowser(t), look, [service.accountUrl, service.url]);
    const { page } = person;
    /** Of amounts: their tip is the exact one where the text is not. */
    const amounts = async (within: string): Promise<readonly bigint[]> => {
      const texts = await page
        .locator(within)
        .evaluateAll((cells: readonly { title: string; textContent: string }[]) =>
          cells.map(({ title, textContent }) => title || textContent),
        );
      return texts.map(amountOf);
    };
    await page.goto(`${service.accountUrl}/sign-in?next=/`);
    await person.fill('E-mail address', owner.email);
    await person.fill('Password', owner.password);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await person.reads('Spent today');
    await page.getByText(`instead of ${asked}`, { exact: true }).waitFor();
    const [spentToday] = await amounts('main dt:text("Spent today") + dd span');
    await person.look();

    await page.locator('main dt:text("Spent today") + dd a').click();
    await page.waitForURL(`${service.accountUrl}/requests?since=today`);
    await page.getByText(hostileName).last().waitFor();
    await page.locator('main dt:text("Charged") + dd span').waitFor();
    await person.look();
    const rows = await amounts('td[data-head="Charged"] span');
    const sum = rows.reduce((total, one) => total + one, 0n);
    assert.equal(rows.length, answered);
    const models = await page.locator('td[data-head="Model"]').allInnerTexts();
    const instead = models.map((text) => text.includes(`instead of ${asked}`));
    assert.deepEqual(instead, [false, false, true, false], models.join('; '));
    const movements = await visitor.get('/v1/ledger?type=usage');
    const ledger = movements.data.reduce(
      (total: number, one: { amount_microcents: number }) => total - one.amount_microcents,
      0,
    );
    const [charged] = await amounts('main dt:text("Charged") + dd span');
    assert.deepEqual([sum, charged, spentToday], [BigInt(ledger), BigInt(ledger), BigInt(ledger)]);

    // The oldest one, by keyboard: its first backend failed.
    for (let at = 0; at < answered; at++) await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/requests\/[0-9a-f-]{36}$/);
    await person.reads('Request to demo');
    await person.look();
    const receipt = await visitor.get(`/v1/generation?id=${new URL(page.url()).pathname.split('/')[2]}`);
    assert.equal(amountOf(await page.locator('tfoot tr:has-text("Charged") td').innerText()), rows.at(-1));
    assert.equal(BigInt(receipt.total_cost_microcents), rows.at(-1));
    assert.deepEqual(
      receipt.attempts.map(({ backend, error_code: code }: Record<string, unknown>) => [backend, code]),
      [
        ['first', 'backend_http_error'],
        ['second', null],
      ],
    );
    await page.getByRole('row', { name: /^first .*backend_http_error/ }).waitFor();
    await person.reads(receipt.request_id);

    // Back by one of its labels, with a filter that nothing matches.
    await page.getByRole('link', { name: tag }).click();
    await page.waitForURL(`${service.accountUrl}/requests?tag=${tag}`);
    await page.getByLabel('State').click();
    await page.locator('[role=option][data-value=crashed]').click();
    await person.reads('No request matches');
    await person.look();
    await page.getByRole('button', { name: 'Clear the filters' }).click();
    await until(async () => (await page.locator('[data-row]').count()) === answered);

    // The movement of credit leads to the same list.
    await page.goto(`${service.accountUrl}/billing?view=movements`);
    await page.getByRole('link', { name: `${answered} requests` }).click();
    await page.waitForURL(/\/requests\?from=\d+$/);
    await until(async () => (await page.locator('[data-row]').count()) === answered);
    await person.look();

    // A report has the same sums, and each of its figures the same requests behind it.
    await page.goto(`${service.accountUrl}/usage?by=key`);
    await page.getByRole('link', { name: hostileName }).waitFor();
    await page.getByText(/as a table$/).waitFor();
    await person.look();
    const reported = [
      ...(await amounts('main dt:text("Charged") + dd span')),
      ...(await amounts('td[data-head="Charged"] span')),
    ];
    assert.deepEqual(reported, [BigInt(ledger), BigInt(ledger)]);
    const [file] = await Promise.all([page.waitForEvent('download'), person.press('Export CSV')]);
    const exported = (await readFile(await file.path(), 'utf8')).split('\r\n');
    assert.ok(
      exported.some((line) => line.includes(`,${ledger},`)),
      exported.join('\n'),
    );
    // Details are not kept for as long as sums are, which both pages say of a period that begins earlier.
    const kept = page.getByText(/^Details of requests are kept since .+\. Of earlier ones, only sums are left\.$/);
    assert.equal(await kept.count(), 0);
    for (const path of ['usage', 'requests']) {
      await page.goto(`${service.accountUrl}/${path}?since=90d`);
      await kept.waitFor();
      assert.match(await kept.innerText(), new RegExp(String(new Date(keptSince).getUTCFullYear() % 100)));
      await person.look();
    }
    await page.goto(`${service.accountUrl}/usage?by=key`);
    // The chart's points: by the keys, of which one is a stop, and by a finger, whose first tap only shows.
    const points = page.getByRole('slider', { name: /^Charged by/ });
    const tip = page.locator('figure [role=status]');
    await points.focus();
    const newest = await tip.innerText();
    assert.ok(newest.includes('$') && newest.includes('Enter'), newest);
    await page.keyboard.press('ArrowLeft');
    assert.notEqual(await tip.innerText(), newest);
    await person.look();
    await page.keyboard.press('End');
    assert.equal(await tip.innerText(), newest);
    await page.keyboard.press('Escape');
    assert.equal(await tip.innerText(), '');
    await page.keyboard.press('Tab');
    const box = (await points.boundingBox())!;
    const at = { clientX: box.x + box.width - 8, clientY: box.y + box.height / 2 };
    const tap = async (): Promise<void> => {
      for (const type of ['pointerdown', 'pointerup', 'click'])
        await points.dispatchEvent(type, { pointerType: 'touch', bubbles: true, ...at });
    };
    await tap();
    assert.equal(await tip.innerText(), newest);
    assert.match(page.url(), /\/usage\?by=key$/);
    await tap();
    await page.waitForURL(/\/requests\?from=\d+$/);
    await page.goto(`${service.accountUrl}/usage?by=key`);
    await points.focus();
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/requests\?from=\d+$/);
    await page.goto(`${service.accountUrl}/usage?by=key`);
    // By service tier and by status, each with the requests behind it and how long they took.
    await page.getByLabel('Group by').selectOption('tier');
    await page.locator('td[data-head="Duration (p50 / p95)"]').filter({ hasText: /\d/ }).waitFor();
    await page.locator('main table').getByRole('link', { name: 'default' }).first().click();
    await page.waitForURL(`${service.accountUrl}/requests?tier=default`);
    await until(async () => (await page.locator('[data-row]').count()) === answered);
    await page.goto(`${service.accountUrl}/usage?by=ending`);
    await page.locator('main table').getByRole('link', { name: 'finished' }).first().click();
    await page.waitForURL(`${service.accountUrl}/requests?ending=finished`);
    await until(async () => (await page.locator('[data-row]').count()) === answered);
    await page.goto(`${service.accountUrl}/usage?by=key`);
    await page.getByLabel('Group by').selectOption('tag');
    await page.locator('main table').getByRole('link', { name: tag }).click();
    await page.waitForURL(`${service.accountUrl}/requests?tag=${tag}`);
    await until(async () => (await page.locator('[data-row]').count()) === answered);
    await person.leave();
  });
