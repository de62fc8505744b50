/** Invoices and webhooks from the command line, beside a running service. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { extractText, getDocumentProxy } from 'unpdf';

import { openConnection } from '../../src/store/sqlite/connection.ts';
import { systemAccounts } from '../../src/store/ledger.ts';
import { uuid } from '../store/fixture.ts';
import { scriptedModel, TestService, until } from '../support/service.ts';
import { startReceiver } from '../notifications/webhooks/receiver.ts';
import { startSmtp } from '../notifications/mail/smtp.ts';
import { CommandFolder, jsonOf, runCommand } from './command.ts';

test('invoices are issued, listed, shown and printed; webhooks are listed, tested and sent again', async (t) => {
  const receiver = await startReceiver(t);
  const smtp = await startSmtp(t);
  const config = `${scriptedModel('- say: [ { text: "hello" } ]')}\nwebhooks: { allow_hosts: ["${receiver.host}"] }\ninvoices: { prefix: X-, seller: { name: Seller } }\nmail: { from: "Seller <bills@example.org>", smtp: { host: 127.0.0.1, port: ${smtp.port}, secure: none } }\n`;
  const service = new TestService({ config });
  t.after(() => service.dispose());
  await service.start();
  const run = (...args: string[]) => runCommand(service.folder, args);
  // A past that comes to nothing, so that the balance stays what it is.
  const now = new Date();
  const lastMonth = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1, 2);
  const connection = openConnection(join(service.folder, 'data', 'tokenhouse.db'));
  connection
    .prepare(`update account set created_at = ?, invoice_email = 'books@example.org' where id = ?`)
    .run(BigInt(lastMonth), service.accountId);
  connection.prepare(`update kysely_migration set timestamp = ?`).run(new Date(lastMonth).toISOString());
  const move = connection.prepare(
    `insert into transfer (id, debit_account, credit_account, amount, kind, idempotency_key, "by", at) values (?, ?, ?, 700000000, ?, ?, 'test', ?)`,
  );
  move.run(uuid(), systemAccounts.cash, service.accountId, 'topup', 'a', BigInt(lastMonth + 1));
  move.run(uuid(), service.accountId, systemAccounts.cash, 'chargeback', 'b', BigInt(lastMonth + 2));
  connection
    .prepare(
      `insert into webhook_endpoint (id, account_id, url, description, secret_version, status, created_at, updated_at) values ('whe_1', ?, ?, '', 1, 'active', 0, 0)`,
    )
    .run(service.accountId, receiver.url);
  connection.close();

  assert.equal((await run('invoices', 'issue')).code, 0);
  const [invoice, ...others] = jsonOf(await run('invoices', 'list', '--json')) as { readonly number: string }[];
  assert.deepEqual(others, []);
  assert.match(invoice!.number, /^X-\d{4}-000001$/);
  const shown = await run('invoices', 'show', invoice!.number, '--pdf', 'out.pdf');
  assert.match(shown.stdout, /Monthly statement X-\d{4}-000001[^]*Payments[^]*\$7\.00/);
  assert.ok(readFileSync(join(service.folder, 'out.pdf')).subarray(0, 5).equals(Buffer.from('%PDF-')));
  assert.equal((await run('invoices', 'show', 'nothing')).code, 1);

  // It comes by mail too, as the same paper.
  const isStatement = ({ source }: { readonly source: string }): boolean => /^Subject: Monthly statement/m.test(source);
  await until(() => smtp.received.some(isStatement), 60_000);
  const mail = smtp.received.find(isStatement);
  assert.deepEqual([mail!.from, mail!.to], ['bills@example.org', ['books@example.org']]);
  assert.match(mail!.source, new RegExp(`^Subject: Monthly statement ${invoice!.number} from Seller\r$`, 'm'));
  const attached = /content-type: application\/pdf[^]*?\r\n\r\n([A-Za-z0-9+/=\r\n]+)\r\n--/i.exec(mail!.source);
  const pdf = await getDocumentProxy(new Uint8Array(Buffer.from(attached![1]!, 'base64')));
  const { text } = await extractText(pdf, { mergePages: true });
  assert.ok(text.includes(invoice!.number) && text.includes('$7.00'), text);

  // A payment that is recorded now leaves a receipt, as the one of that month has, and it is mailed as well.
  assert.equal((await run('credits', 'topup', '--dollars', '9.00', '--reason', 'bank transfer')).code, 0);
  type Listed = readonly { readonly number: string; readonly method: string }[];
  const receipts = async () => jsonOf(await run('receipts', 'list', '--json')) as Listed;
  await until(async () => (await receipts()).length === 2, 60_000);
  const [receipt] = await receipts();
  assert.match(receipt!.number, /^X-R\d{4}-000002$/);
  assert.equal(receipt!.method, 'Recorded by the seller');
  const paper = await run('receipts', 'show', receipt!.number, '--pdf', 'receipt.pdf');
  assert.match(paper.stdout, /Receipt X-R\d{4}-000002[^]*bank transfer[^]*\$9\.00/);
  assert.ok(readFileSync(join(service.folder, 'receipt.pdf')).subarray(0, 5).equals(Buffer.from('%PDF-')));
  assert.equal((await run('receipts', 'show', 'nothing')).code, 1);
  const subject = new RegExp(`^Subject: Receipt ${receipt!.number} from Seller\r$`, 'm');
  await until(() => smtp.received.some(({ source }) => subject.test(source)), 60_000);

  assert.equal((await run('webhooks', 'test', 'whe_1')).code, 0);
  const pings = () => receiver.received.filter(({ body }) => body.includes('"type":"ping"'));
  await until(() => pings().length === 1);
  const listed = async () =>
    (
      jsonOf(await run('webhooks', 'list', '--json')) as {
        readonly deliveries: readonly { readonly id: string; readonly type: string; readonly state: string }[];
      }[]
    )[0]!.deliveries.find(({ type }) => type === 'ping')!;
  await until(async () => (await listed()).state === 'delivered');
  assert.equal((await run('webhooks', 'replay', (await listed()).id)).code, 0);
  await until(() => pings().length === 2);
  assert.equal(pings()[0]!.headers['webhook-id'], pings()[1]!.headers['webhook-id']);
  // The service tells of the invoice by itself.
  await until(() => receiver.received.some(({ body }) => body.includes('"type":"invoice.issued"')), 60_000);
  assert.equal((await run('webhooks', 'test', 'whe_2')).code, 1);
  await service.verify();
});

test('without a service here, what takes one says so', async (t) => {
  const folder = new CommandFolder(scriptedModel('- say: [ { text: "hello" } ]'));
  t.after(() => folder.dispose());
  const { code, stderr } = await folder.run('invoices', 'issue');
  assert.equal(code, 1);
  assert.match(stderr, /No service is running here/);
});
