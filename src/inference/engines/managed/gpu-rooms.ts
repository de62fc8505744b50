import { RoomClaim, SharedRoom, type Occupant } from '../shared-room.ts';

/** What a server takes of what it shares with others. */
export interface ServerNeeds {
  /** Servers with the same word share one GPU, or one memory; `undefined`: it shares with nobody. */
  readonly group: string | undefined;
  /** Above 0, at most 1: all of it. */
  readonly share: number;
}

class ServerClaim extends RoomClaim {
  readonly share: number;

  constructor(room: SharedRoom<ServerClaim>, occupant: Occupant, share: number) {
    super(room, occupant);
    this.share = share;
  }
}

/** The GPUs that servers share by turns, as embedded models share the memory (docs/decisions/062-managed-servers.md). */
export class GpuRooms {
  readonly #rooms = new Map<string, SharedRoom<ServerClaim>>();

  register({ group, share }: ServerNeeds, occupant: Occupant): RoomClaim {
    let room = group === undefined ? undefined : this.#rooms.get(group);
    if (room === undefined) {
      room = new SharedRoom<ServerClaim>({ turnMs: turnMsMin, recheckMs: 1_000, fits });
      if (group !== undefined) this.#rooms.set(group, room);
    }
    return room.add(new ServerClaim(room, occupant, share));
  }
}

/** Shares are decimal fractions. */
const fits = (claim: ServerClaim, others: readonly ServerClaim[]): boolean =>
  others.reduce((sum, { share }) => sum + share, claim.share) <= 1 + 1e-9;

export const turnMsMin = 10_000;
