import assert from 'node:assert/strict';

import { TestLedger } from './test-ledger.ts';
import { TestService } from './service.ts';
import { clientOf, type Client } from './service-client.ts';

/** Of the models in front of real servers that embed or rank. */
export const centsPerMillion = 5000;

/** An entry of the configuration. */
export const taskModel = (
  id: string,
  contextLength: number,
  capabilities: string,
  backend: string,
): string => `  - id: ${id}
    context_length: ${contextLength}
    pricing: { input_cents_per_million: ${centsPerMillion}, output_cents_per_million: 20000 }
    capabilities: { ${capabilities} }
    backends: [ ${backend} ]`;

/** A service in front of a real server that embeds or ranks: what it charges, refuses and finds out. */
export class TaskScene {
  service!: TestService;
  ledger!: TestLedger;
  client!: Client;

  protected async serve(models: readonly string[]): Promise<void> {
    this.service = await new TestService({ config: `models:\n${models.join('\n')}` }).start();
    this.ledger = new TestLedger(this.service);
    this.client = clientOf(this.service);
  }

  async dispose(): Promise<void> {
    try {
      await this.ledger?.verify({ owned: true });
    } finally {
      await this.service?.dispose();
    }
  }

  /** Runs it, and resolves with what it has cost in tokens of the input's price. */
  async tokensPaid(run: () => Promise<unknown>): Promise<number> {
    const before = await this.ledger.balance();
    await run();
    return Number(before - (await this.ledger.balance())) / centsPerMillion;
  }

  /** The refusal of a request, which must not be charged. */
  async refusal(route: string, fields: object): Promise<readonly [status: number, code: unknown, param: unknown]> {
    let found: Awaited<ReturnType<Client['refused']>> | undefined;
    assert.equal(await this.tokensPaid(async () => (found = await this.client.refused(route, fields))), 0);
    return [found!.status, found!.code, found!.param];
  }

  /** `backends add` finds out what a server is and what it is for, and it answers at once. Resolves with what the command said. */
  async assertAdded(
    args: readonly string[],
    made: RegExp,
    { route, fields }: { readonly route: string; readonly fields: object },
  ): Promise<string> {
    const { code, stdout, stderr } = await this.service.command('backends', 'add', ...args, '--id', 'added');
    assert.equal(code, 0, stderr);
    assert.match(stdout, made);
    await this.client.json(route, { model: 'added', ...fields });
    return stdout;
  }
}
