/** A service with several workers, and its processes one by one. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';

import type { OperationAnswer, OperationKind, OperationRequest } from '../../src/accounts/operations.ts';
import { askRunningService } from '../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../src/app/control/socket-path.ts';
import { parseExposition, total } from '../platform/metrics/exposition.ts';
import type { Family } from '../platform/metrics/exposition.ts';
import { RawClient, chatBytes, newRequestId } from './raw-client.ts';
import { until } from './service.ts';
import type { TestService } from './service.ts';

export const longMs = 60_000;

/** Process ids of the workers that run now. */
export function workersOf(service: TestService): readonly number[] {
  const { pid } = service;
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1');
    return children.trim().split(' ').filter(Boolean).map(Number).filter(isAlive);
  } catch {
    return [];
  }
}

export function isAlive(pid: number): boolean {
  try {
    // A zombie is dead.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'latin1'));
  } catch {
    return false;
  }
}

/** Resolves when that many workers serve. */
export async function serving(service: TestService, count: number): Promise<void> {
  await until(async () => (await figure(service, 'tokenhouse_workers')) === count, longMs);
}

/** Kills a worker; resolves when another one serves in its place. */
export async function replaced(service: TestService, worker: number, count: number): Promise<void> {
  const before = await figure(service, 'tokenhouse_workers_ended_total');
  process.kill(worker, 'SIGKILL');
  await until(async () => (await figure(service, 'tokenhouse_workers_ended_total')) === before + 1, longMs);
  await serving(service, count);
}

export async function metrics(service: TestService): Promise<ReadonlyMap<string, Family>> {
  const answer = await fetch(`${service.accountUrl}/metrics`);
  return parseExposition(await answer.text());
}

/** The sum of a metric's samples that have these labels; 0 where there is no such metric. */
export async function figure(
  service: TestService,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): Promise<number> {
  const families = await metrics(service);
  return families.has(name) ? total(families, name, labels) : 0;
}

/**
 * Resolves when the service has heard what another of its processes had to report before: of three reports, the last was made after
 * the first was counted. `act` gives the other something new to report.
 */
export async function hasHeardAll(service: TestService, act: (turn: number) => Promise<unknown>): Promise<void> {
  const heard = (): Promise<number> => figure(service, 'tokenhouse_peer_reports_total', { direction: 'heard' });
  const before = await heard();
  let turn = 0;
  await until(async () => {
    await act(turn++);
    return (await heard()) >= before + 3;
  }, longMs);
}

/** What the command line asks of a running service, without a process for it. */
export async function report<Kind extends OperationKind>(
  service: TestService,
  operation: OperationRequest<Kind>,
): Promise<OperationAnswer<Kind>> {
  const answer = await askRunningService(controlSocketPath(join(service.folder, 'data')), operation);
  if (answer === undefined) throw new Error('no service runs there');
  return answer;
}

export interface Sent {
  readonly client: RawClient;
  readonly id: string;
}

/** A chat completion over a connection of its own. */
export async function send(
  service: TestService,
  body: Readonly<Record<string, unknown>>,
  { key = service.key, headers = '' } = {},
): Promise<Sent> {
  const id = newRequestId();
  const client = await RawClient.connect(service.url);
  client.send(chatBytes(key, id, body).replace('host: test\r\n', `host: test\r\n${headers}`));
  return { client, id };
}

/** Whether the worker has taken the connection. */
function hasTaken(worker: number, { client }: Sent): boolean {
  const port = client.localPort.toString(16).toUpperCase().padStart(4, '0');
  // Connections that have ended stay in the list for a minute, without an inode, and their ports are used again meanwhile.
  const inodes = new Set(
    readFileSync('/proc/net/tcp', 'latin1')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter((fields) => fields[2]?.endsWith(`:${port}`) && fields[9] !== '0')
      .map((fields) => `socket:[${fields[9]}]`),
  );
  const folder = `/proc/${worker}/fd`;
  return readdirSync(folder).some((name) => {
    try {
      return inodes.has(readlinkSync(join(folder, name)));
    } catch {
      return false; // closed meanwhile
    }
  });
}

/** Does something over a connection that this worker takes: the others stand still until it has. */
export async function at(service: TestService, worker: number, act: () => Promise<Sent>): Promise<Sent> {
  const others = workersOf(service).filter((pid) => pid !== worker);
  let sent: Sent | undefined;
  for (const pid of others) process.kill(pid, 'SIGSTOP');
  try {
    sent = await act();
    await until(() => hasTaken(worker, sent!), longMs);
  } finally {
    for (const pid of others) process.kill(pid, 'SIGCONT');
  }
  await until(() => sent.client.status !== 0 || sent.client.isClosed, longMs);
  return sent;
}

/** The whole of an answer that says its own end. */
export async function whole({ client }: Sent): Promise<string> {
  await until(() => client.isClosed || client.tail(64).includes('0\r\n\r\n') || isWholeBody(client.text), longMs);
  return client.text;
}

function isWholeBody(text: string): boolean {
  const head = text.indexOf('\r\n\r\n');
  const length = Number(/\r\ncontent-length: (\d+)/i.exec(text)?.[1] ?? NaN);
  return head >= 0 && Buffer.byteLength(text.slice(head + 4)) === length;
}
