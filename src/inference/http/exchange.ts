import type { IncomingMessage, ServerResponse } from 'node:http';

import type { Slot } from '../../billing/rate-limits/slot.ts';
import type { ApiError } from '../../platform/errors.ts';
import { clientAddress } from '../../platform/http/client-address.ts';
import type { ListenerConnection } from '../../platform/http/listener.ts';
import { keptIds, requestIds } from '../../platform/ids/request-id.ts';
import { publicIdOf } from '../../platform/ids/uuid.ts';
import type { Origin } from '../pipeline/access.ts';
import { CallRecord } from './call-record.ts';
import { corsHeaders } from './cors.ts';
import type { Host } from './host.ts';

/** A request of a client and its answer, from the head to the last byte: the one record of it. */
export class Exchange extends CallRecord implements Origin {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly connection: ListenerConnection;
  /** Routes are found by the path alone: queries are ignored (contracts §1.0). */
  readonly path: string;
  /** Sent as `x-request-id`, whether or not it may be kept. */
  readonly sentId: string;
  publicId: string;
  clientId: string | null;
  readonly batchId = null;
  /** CORS headers: which pages may read the answer. */
  readonly cors: Readonly<Record<string, string>>;

  /** The id of the request whose answer is repeated (`Idempotency-Key`), sent instead of its own id. */
  repeatOf: string | undefined = undefined;
  /** Why the answer is an error, for the log; set by `sendError` and `respondStream`. */
  error: ApiError | undefined = undefined;
  /** The hash of its key, if that is not live. */
  keyHash: string | undefined = undefined;
  /** Held for a large body. */
  large: Slot | undefined = undefined;

  constructor(host: Host, request: IncomingMessage, response: ServerResponse, connection: ListenerConnection) {
    const { services, options } = host;
    super(host, request.headers, services.running.begin());
    this.request = request;
    this.response = response;
    this.connection = connection;
    this.path = pathOf(request);
    const own = publicIdOf(this.id);
    const ids = requestIds(request.headers['x-request-id'], own);
    const kept = keptIds(ids, request.headers['service-zdr'], own);
    this.sentId = ids.publicId;
    this.publicId = kept.publicId;
    this.clientId = kept.clientId;
    this.cors = corsHeaders(request, this.lease.runtimeConfig.allowedOrigins, options.accountUrl);
    response.on('close', () => {
      if (!response.writableFinished) this.running.cancel('client-left');
      // A connection that outlives its answer could bring new requests while the service stops.
      else if (!services.ready()) request.socket.end();
    });
    // The port is closed while stopping, but connections that were not idle are still open, for this answer only.
    if (!services.ready()) response.shouldKeepAlive = false;
  }

  /** The client's address. */
  get address(): string | undefined {
    return clientAddress(this.request, this.lease.runtimeConfig.trustedProxies);
  }

  override end(): void {
    this.large?.release();
    super.end();
  }
}

function pathOf({ url = '/' }: IncomingMessage): string {
  const query = url.indexOf('?');
  return query < 0 ? url : url.slice(0, query);
}
