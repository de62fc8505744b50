import { chmodSync, unlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';

import Type from 'typebox';
import { Compile } from 'typebox/compile';

import { movements } from '../../accounts/credit.ts';
import { commandLine } from '../../accounts/actor.ts';
import { OperationError } from '../../accounts/operation.ts';
import { operate } from '../../accounts/operations.ts';
import type { OperationServices } from '../../accounts/operation.ts';
import type { Operation, OperationAnswer } from '../../accounts/operation-kinds.ts';
import { roles } from '../../accounts/role.ts';
import { taxStatuses } from '../../tax/tax.ts';
import { statusRequest } from './status.ts';
import type { ServiceStatus } from './status.ts';
import type { NotificationRequest, Reported } from './notification-request.ts';
import type { ReloadOutcome } from '../../config/reload-outcome.ts';

/** The messages on the control socket: one line of JSON each way, then the connection ends. */
export type ControlReply =
  | { readonly answer: OperationAnswer }
  | { readonly status: ServiceStatus }
  | { readonly reload: ReloadOutcome }
  | { readonly reported: Reported }
  /** A request that cannot be fulfilled, with a message for display. */
  | { readonly refused: string }
  | { readonly failed: string };

export interface ControlServices {
  readonly operations: OperationServices;
  status(): ServiceStatus | Promise<ServiceStatus>;
  /** Reads the configuration again. */
  reload(): Promise<ReloadOutcome>;
  /** Throws OperationError. */
  report(input: NotificationRequest): Promise<Reported>;
}

const text = Type.String();
const textOrNull = Type.Union([text, Type.Null()]);
const rate = Type.Union([Type.Integer(), Type.Null()]);
const list = Type.Union([Type.Array(text), Type.Null()]);
const flag = Type.Union([Type.Boolean(), Type.Null()]);
const microcents = Type.String({ pattern: '^[0-9]{1,18}$' });
const budget = Type.Object({
  microcents: Type.String({ pattern: '^[0-9]{1,19}$' }),
  per: Type.Enum(['day', 'week', 'month', 'total']),
});

/** null removes a limit. */
const limits = Type.Object({
  endpoints: Type.Optional(list),
  addresses: Type.Optional(list),
  zdrOnly: Type.Optional(flag),
  planKey: Type.Optional(flag),
  concurrencyMax: Type.Optional(rate),
  requestsPerMinute: Type.Optional(rate),
  tokensPerMinute: Type.Optional(rate),
});

/** The one request about the process instead of accounts. */
const reloadRequest = Compile(Type.Object({ kind: Type.Literal('reload') }));

const notificationRequests = Compile(
  Type.Union([
    Type.Object({ kind: Type.Literal('issue_invoices') }),
    Type.Object({ kind: Type.Literal('invite'), accountId: text, email: text, token: text }),
    Type.Object({ kind: Type.Literal('test_webhook'), endpointId: text }),
    Type.Object({ kind: Type.Literal('replay_webhook'), deliveryId: text }),
  ]),
);

/** Every `Operation`, in JSON. */
const operations = Compile(
  Type.Union([
    Type.Object({
      kind: Type.Literal('create_account'),
      name: text,
      ownerEmail: Type.Optional(text),
      creditMicrocents: Type.Optional(microcents),
      keyName: Type.Optional(text),
    }),
    Type.Object({
      kind: Type.Literal('create_key'),
      accountId: Type.Optional(text),
      name: text,
      userId: Type.Optional(text),
      expiresAt: Type.Optional(Type.Integer()),
      expiresAfterMs: Type.Optional(Type.Integer({ minimum: 1 })),
      models: Type.Optional(Type.Array(text)),
      limits: Type.Optional(limits),
      budget: Type.Optional(budget),
      tags: Type.Optional(Type.Array(text)),
      role: Type.Optional(Type.Enum([...roles])),
      isOperator: Type.Optional(Type.Boolean()),
    }),
    Type.Object({ kind: Type.Literal('budget_key'), keyId: text, budget: Type.Optional(budget) }),
    Type.Object({
      kind: Type.Literal('budget_account'),
      accountId: Type.Optional(text),
      budget: Type.Optional(budget),
    }),
    Type.Object({ kind: Type.Literal('allow_key'), keyId: text, models: Type.Optional(Type.Array(text)) }),
    Type.Object({
      kind: Type.Literal('allow_account'),
      accountId: Type.Optional(text),
      models: Type.Optional(Type.Array(text)),
    }),
    Type.Object({
      kind: Type.Literal('set_price'),
      accountId: Type.Optional(text),
      model: text,
      input: microcents,
      output: microcents,
      cacheRead: Type.Optional(microcents),
      validFrom: Type.Optional(Type.Integer()),
      validTo: Type.Optional(Type.Integer()),
    }),
    Type.Object({
      kind: Type.Literal('edit_account'),
      accountId: Type.Optional(text),
      name: Type.Optional(text),
      billing: Type.Optional(
        Type.Object({
          legalName: Type.Optional(textOrNull),
          addressLines: Type.Optional(Type.Union([Type.Array(text), Type.Null()])),
          country: Type.Optional(textOrNull),
          taxId: Type.Optional(textOrNull),
          taxStatus: Type.Optional(Type.Enum([...taxStatuses])),
          invoiceEmail: Type.Optional(textOrNull),
        }),
      ),
    }),
    Type.Object({
      kind: Type.Literal('plan_account'),
      accountId: Type.Optional(text),
      plan: Type.Optional(text),
    }),
    Type.Object({
      kind: Type.Literal('limit_account'),
      accountId: Type.Optional(text),
      concurrencyMax: Type.Optional(Type.Integer()),
    }),
    Type.Object({
      kind: Type.Literal('limit_key'),
      keyId: text,
      limits,
    }),
    Type.Object({
      kind: Type.Literal('edit_key'),
      keyId: text,
      name: Type.Optional(text),
      expiresAt: Type.Optional(Type.Union([Type.Integer(), Type.Null()])),
      expiresAfterMs: Type.Optional(Type.Integer({ minimum: 1 })),
      models: Type.Optional(list),
      limits: Type.Optional(limits),
      tags: Type.Optional(Type.Array(text)),
      disabled: Type.Optional(Type.Boolean()),
    }),
    Type.Object({ kind: Type.Literal('rotate_key'), keyId: text, overlapMs: Type.Integer({ minimum: 0 }) }),
    Type.Object({ kind: Type.Literal('remove_price'), accountId: Type.Optional(text), model: text }),
    Type.Object({ kind: Type.Literal('revoke_key'), keyId: text }),
    Type.Object({
      kind: Type.Literal('delete_account'),
      accountId: text,
      forfeitCredit: Type.Optional(Type.Boolean()),
    }),
    Type.Object({
      kind: Type.Literal('refund_request'),
      accountId: Type.Optional(text),
      requestId: text,
      microcents: Type.Optional(microcents),
      reference: Type.Optional(text),
    }),
    Type.Object({ kind: Type.Literal('limit_credit'), accountId: Type.Optional(text), microcents }),
    Type.Object({
      kind: Type.Literal('move_credit'),
      movement: Type.Enum(Object.keys(movements)),
      accountId: Type.Optional(text),
      microcents,
      reference: Type.Optional(text),
      idempotencyKey: text,
      expiresAfterMs: Type.Optional(Type.Integer({ minimum: 1 })),
    }),
    Type.Object({ kind: Type.Literal('owner_link') }),
    Type.Object({ kind: Type.Literal('create_owner'), email: text, name: text, passwordHash: text }),
    Type.Object({ kind: Type.Literal('release_person'), email: text }),
    Type.Object({
      kind: Type.Enum(['suspend_account', 'revive_account']),
      accountId: text,
      reason: Type.Optional(text),
    }),
  ]),
);

const requestBytesMax = 65_536;
const requestTimeoutMs = 10_000;

/**
 * Listens for the command line's writes while this process owns the database. Access to the socket gives all of an operator's
 * rights: it has mode 0600, in a folder of mode 0700.
 */
export async function listenForControl(path: string, services: ControlServices): Promise<Server> {
  const server = createServer((socket) => void serveCommand(socket, services));
  server.maxConnections = 16;
  if (process.platform !== 'win32') removeStale(path);
  // The mask applies from the moment the socket exists; chmod afterwards would leave a gap.
  const mask = process.umask(0o177);
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject).listen(path, resolve);
    });
  } finally {
    process.umask(mask);
  }
  if (process.platform !== 'win32') chmodSync(path, 0o600);
  return server;
}

/** We hold the database's lock, so an existing socket belongs to a process that is gone. */
function removeStale(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

async function serveCommand(socket: Socket, services: ControlServices): Promise<void> {
  socket.setTimeout(requestTimeoutMs, () => socket.destroy());
  socket.on('error', () => socket.destroy());
  const line = await readLine(socket);
  if (line === undefined) {
    socket.destroy();
    return;
  }
  // Operations have their own timeouts: a new engine may take minutes until it is ready.
  socket.setTimeout(0);
  const reply = await replyTo(line, services);
  socket.end(`${JSON.stringify(reply)}\n`);
}

async function replyTo(line: string, services: ControlServices): Promise<ControlReply> {
  try {
    const operation: unknown = JSON.parse(line);
    if ((operation as { readonly kind?: unknown } | null)?.kind === statusRequest.kind)
      return { status: await services.status() };
    if (reloadRequest.Check(operation)) return { reload: await services.reload() };
    if (notificationRequests.Check(operation))
      return { reported: await services.report(operation as NotificationRequest) };
    if (!operations.Check(operation)) {
      throw new OperationError(
        'The running service does not know this operation. Restart it, if it is of another version than this command.',
      );
    }
    return { answer: await operate(operation as Operation, { ...services.operations, actor: commandLine }) };
  } catch (error) {
    if (error instanceof OperationError) return { refused: error.message };
    return { failed: error instanceof Error ? error.message : String(error) };
  }
}

function readLine(socket: Socket): Promise<string | undefined> {
  return new Promise((resolve) => {
    let text = '';
    socket.setEncoding('utf8');
    socket.on('data', (chunk: string) => {
      text += chunk;
      const end = text.indexOf('\n');
      if (end >= 0) resolve(text.slice(0, end));
      else if (text.length > requestBytesMax) resolve(undefined);
    });
    socket.on('close', () => resolve(undefined));
  });
}
