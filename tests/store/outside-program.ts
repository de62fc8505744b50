/**
 * Another program at the database: it does to the file what its standard input says, one line of JSON `{ open | run | close | backup }`
 * at a time, and answers each with a line: `null`, or what SQLite says against it.
 */
import { backup, DatabaseSync } from '@photostructure/sqlite';
import { createInterface } from 'node:readline';

export type Step =
  { readonly open: string } | { readonly run: string } | { readonly backup: string } | { readonly close: true };

let connection: InstanceType<typeof DatabaseSync> | undefined;
for await (const line of createInterface({ input: process.stdin })) {
  const refusal = await take(JSON.parse(line) as Step).then(
    () => null,
    (error: unknown) => String(error),
  );
  process.stdout.write(`${JSON.stringify(refusal)}\n`);
}

async function take(step: Step): Promise<void> {
  if ('open' in step) connection = new DatabaseSync(step.open, { timeout: 2_000 });
  else if ('run' in step)
    connection!.exec(step.run); // keeps no statement, which would keep the file open after `close`
  else if ('backup' in step) await backup(connection!, step.backup);
  else connection!.close();
}
