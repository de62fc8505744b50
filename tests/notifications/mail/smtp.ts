import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';

import { SMTPServer } from 'smtp-server';
import type { SMTPServerOptions } from 'smtp-server';

import { inRepository } from '../../support/repository.ts';

export interface ReceivedMail {
  readonly from: string;
  readonly to: readonly string[];
  readonly user: string | undefined;
  readonly isSecure: boolean;
  /** As it came. */
  readonly source: string;
}

export interface TestSmtp {
  readonly port: number;
  readonly received: readonly ReceivedMail[];
  /** What is answered to the next mails, first ones first: a status that is not 250. */
  readonly refusals: number[];
}

/** What `testAuthority` vouches for. */
export function tlsOfTests(): { readonly key: string; readonly cert: string } {
  const pem = (name: string): string => readFileSync(inRepository('tests/fixtures/tls', name), 'utf8');
  return { key: pem('key.pem'), cert: pem('cert.pem') };
}

/** A real mail server on a port of its own. */
export async function startSmtp(t: TestContext, options: SMTPServerOptions = {}, port = 0): Promise<TestSmtp> {
  const received: ReceivedMail[] = [];
  const refusals: number[] = [];
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    logger: false,
    ...options,
    onAuth: ({ username, password }, _session, callback) =>
      password === 'right' ? callback(null, { user: username }) : callback(new Error('wrong password')),
    onData: (stream, session, callback) => {
      const pieces: Buffer[] = [];
      stream.on('data', (piece: Buffer) => pieces.push(piece));
      stream.on('end', () => {
        const status = refusals.shift();
        if (status !== undefined) {
          callback(Object.assign(new Error('not now'), { responseCode: status }));
          return;
        }
        const { mailFrom, rcptTo } = session.envelope;
        received.push({
          from: mailFrom === false ? '' : mailFrom.address,
          to: rcptTo.map(({ address }) => address),
          user: session.user as string | undefined,
          isSecure: session.secure,
          source: Buffer.concat(pieces).toString('utf8'),
        });
        callback();
      });
    },
  });
  server.on('error', () => {}); // of a client that left; the test looks at what it sees
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  t.after(() => new Promise<void>((resolve) => server.close(() => resolve())));
  return { port: (server.server.address() as AddressInfo).port, received, refusals };
}
