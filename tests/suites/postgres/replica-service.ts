/** The whole program as one of several replicas. */
import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

import { temporaryFolder } from '../../store/fixture.ts';
import { noFeatures, scriptedModel, TestService } from '../../support/service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import type { PostgresServer } from './server.ts';

const model = scriptedModel(
  `- { when: { last_text: slow }, say: [{ text: "one two three four five six seven eight nine ten" }], pace_ms: 1000 }
- { when: { last_text: twenty seconds }, say: [{ text: ["word "] }], repeat: 20, pace_ms: 1000 }
- { when: { last_text: longer }, say: [{ text: ["word "] }], repeat: 45, pace_ms: 1000 }
- { when: { last_text: endless }, say: [{ text: ["word "] }], repeat: 2000, pace_ms: 100 }
- { when: { last_text: short }, say: [{ text: ["word "] }], repeat: 10, pace_ms: 3 }
- { when: { last_text: paced }, say: [{ text: ["word "] }], repeat: 20, pace_ms: 50 }
- { say: [{ text: "one two three four five six seven eight" }] }`,
  { settings: noFeatures },
);
export const secret = 'a secret of thirty-two characters';

/** What a replica's file says beside its ports, with more of it. */
export const configOn = (more = '', models = model): string => `storage: env:TEST_DATABASE
${more}${models}`;

/** Not started. Replicas of one database have one secret, and a folder each. */
export function serviceOn(
  url: string,
  {
    environment = {},
    config = '',
    models,
    entry,
    firstCreditCents = '500',
  }: {
    readonly environment?: Record<string, string>;
    readonly config?: string;
    /** Others than `demo` with its texts. */
    readonly models?: string;
    /** Another program than the real one: a file of `tests/`. */
    readonly entry?: string;
    readonly firstCreditCents?: string;
  } = {},
): TestService {
  return new TestService({
    ...(entry === undefined ? {} : { entry }),
    config: configOn(config, models),
    environment: { ...environment, TEST_DATABASE: url, TOKENHOUSE_SECRET: secret },
    firstCreditCents,
  });
}

/** Three replicas of a new database. */
export async function replicasOf(
  t: Pick<TestContext, 'after'>,
  server: PostgresServer,
  options: Parameters<typeof serviceOn>[1],
): Promise<{ readonly replicas: readonly [TestService, TestService, TestService]; readonly ledger: TestLedger }> {
  const url = await server.createDatabase();
  const files = join(temporaryFolder(t), 'files');
  mkdirSync(files);
  const replicas: TestService[] = [];
  t.after(() => Promise.all(replicas.map((replica) => replica.dispose())));
  for (let number = 0; number < 3; number++) {
    const replica = serviceOn(url, options);
    replicas.push(replica);
    // What a bucket is for replicas on several machines.
    mkdirSync(join(replica.folder, 'data'), { mode: 0o700 });
    symlinkSync(files, join(replica.folder, 'data', 'files'));
    // Only the first one of a database makes an account, and says so.
    if (number > 0) replica.takesAccountOf(replicas[0]!);
    await replica.start();
  }
  const ledger = new TestLedger(Object.assign(Object.create(replicas[0]!) as TestService, { database: url }));
  return { replicas: replicas as [TestService, TestService, TestService], ledger };
}

export const ask = { model: 'demo', messages: [{ role: 'user', content: 'hello' }] };

/** A chat whose answer is streamed: `slow`, `endless` or `paced`. */
export const stream = (content: string) => ({
  model: 'demo',
  stream: true,
  messages: [{ role: 'user', content }],
});

/** A chat that is sent again when the database did not answer in time, as the error says: machines may be that busy. */
export async function asked(
  service: TestService,
  body: Readonly<Record<string, unknown>> = ask,
  init: { readonly key?: string } = {},
): Promise<Response> {
  const deadline = performance.now() + 60_000;
  for (;;) {
    const answer = await service.chat(body, init);
    if (answer.status !== 500 || performance.now() > deadline) return answer;
    await answer.arrayBuffer();
  }
}
