import { messagesKeptMs, type PeerMessage, type Peers } from '../../platform/peers/peers.ts';
import { Session, type PostgresAddress } from './connection.ts';
import { storeErrorOf } from './postgres-error.ts';
import { databaseNow } from './statements.ts';

/** After this, the next exchange is due. */
const answerTimeoutMs = 1_000;
/** Maximum messages read together: those of 25 replicas for as long as they are kept. */
const messagesMax = 256;

/**
 * Inserts a message ($3 and its number $2) and reads those of others: for each known replica ($4) those after the last one read ($5). A
 * replica writes sequentially, so no lower number can come later. It deletes its own old messages, and those left by replicas that have
 * ended.
 */
const exchange = {
  name: 'peer_exchange',
  text: `
    with look as (
      select ${databaseNow} as now
    ), sent as (
      insert into peer_message (replica_id, number, sent_at, text)
      select $1::bytea, $2::bigint, now, $3::text from look where $3::text is not null
    ), gone as (
      delete from peer_message using look
      where sent_at < now - ${messagesKeptMs} and (replica_id = $1::bytea or sent_at < now - ${12 * messagesKeptMs})
    )
    select encode(replica_id, 'hex') as "from", number, text
    from peer_message left join unnest($4::bytea[], $5::bigint[]) as read (replica_id, number_read) using (replica_id), look
    where replica_id <> $1::bytea and number > coalesce(number_read, 0) and sent_at >= now - ${messagesKeptMs}
    order by replica_id, number limit ${messagesMax}`,
};

interface Row extends PeerMessage {
  readonly number: bigint;
}

/** Messages in rows of PostgreSQL, which need not survive a crash. Uses a dedicated connection, opened at the first use. */
export class PostgresPeers implements Peers {
  readonly #session: Session;
  readonly #replica: () => Uint8Array;
  #number = 0;
  /** The number of the last message read from each replica. */
  readonly #read = new Map<string, bigint>();

  /** `replica`: the id of this replica, which changes after it has expired. */
  constructor({ address, replica }: { readonly address: PostgresAddress; readonly replica: () => Uint8Array }) {
    this.#session = new Session({ address });
    this.#replica = replica;
  }

  async exchange(text: string | undefined): Promise<readonly PeerMessage[]> {
    const known = [...this.#read.keys()].map((id) => Buffer.from(id, 'hex'));
    const values = [this.#replica(), ++this.#number, text ?? null, known, [...this.#read.values()]];
    try {
      const { rows } = await this.#session.query<Row>(exchange, values, answerTimeoutMs);
      // Replicas that are silent for long have ended.
      if (this.#read.size > messagesMax) this.#read.clear();
      for (const { from, number } of rows) this.#read.set(from, number);
      return rows.map(({ from, text: said }) => ({ from, text: said }));
    } catch (error) {
      throw storeErrorOf(error);
    }
  }

  close(): Promise<void> {
    return this.#session.close();
  }
}
