import type { Change } from '../feed.ts';
import type { Ending, OpenRequest, Transfer } from '../ledger.ts';
import type { LeaseRequest } from '../leases.ts';
import type { LimitAnswer, LimitExchange, LimitShare, WantedLimit } from '../limit-leases.ts';
import type { SqlValue } from '../reports/usage-columns.ts';
import type { RepositoryOperation } from '../repositories/repositories.ts';
import type { PeerMessage } from '../../platform/peers/peers.ts';
import type { Rpc } from '../../platform/rpc/rpc.ts';

/** What a worker calls at the process that owns the ledger, which trusts none of it. Rejections are StoreErrors. */
export type OwnerCalls = {
  readonly settle: (row: { readonly requestId: Uint8Array; readonly values: readonly SqlValue[] }) => 'billed' | 'lost';
  /** A note. */
  readonly open: (request: OpenRequest) => void;
  readonly grant: (input: LeaseRequest) => bigint;
  readonly return_unused: (lease: { readonly balanceId: string; readonly microcents: bigint }) => void;
  readonly read_back: (
    requestId: Uint8Array,
  ) => { readonly costMicrocents: bigint; readonly ending: Ending } | undefined;
  readonly probe: (nothing: null) => void;
  readonly transfer: (transfer: Transfer) => boolean;
  readonly repositories: (call: { readonly name: RepositoryOperation; readonly request: unknown }) => unknown;
  /** What was reported before the answer has arrived before it. */
  readonly look: (nothing: null) => null;
  readonly exchange_limits: (asks: readonly LimitExchange[]) => readonly LimitAnswer[];
  readonly wanted_limits: (nothing: null) => readonly WantedLimit[];
  readonly held_limits: (nothing: null) => readonly LimitShare[];
  readonly exchange_messages: (text: string | undefined) => readonly PeerMessage[];
};

/** What the owner of the ledger calls at a worker. */
export type WorkerCalls = {
  /** Has it return what is idle of the balance; answered when that has arrived. */
  readonly return_free: (balanceId: string) => void;
  /** Answered when they are in force. */
  readonly changes: (changes: readonly Change[]) => void;
  /** A note: credit has come in, so a request that was refused need not wait any longer. */
  readonly credited: (balanceId: string) => void;
  /** A note: the owner is alive. */
  readonly heartbeat: (nothing: null) => void;
};

/** The connection as a worker sees it, and as the owner of the ledger does. Messages arrive in the order of their sending. */
export type OwnerPort = Pick<Rpc<OwnerCalls, WorkerCalls>, 'call' | 'note' | 'handle'>;
export type WorkerPort = Pick<Rpc<WorkerCalls, OwnerCalls>, 'call' | 'note' | 'handle'>;
