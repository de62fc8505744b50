import { RoomClaim, SharedRoom, type Occupant } from '../shared-room.ts';
import type { ServerShare } from './server-share.ts';

class ServerClaim extends RoomClaim {
  readonly share: Pick<ServerShare, 'part'>;

  constructor(room: SharedRoom<ServerClaim>, occupant: Occupant, share: Pick<ServerShare, 'part'>) {
    super(room, occupant);
    this.share = share;
  }
}

/** The GPUs that servers share by turns, as embedded models share the memory (docs/decisions/062-managed-servers.md). */
export class GpuRooms {
  readonly #rooms = new Map<string, SharedRoom<ServerClaim>>();

  register(share: Pick<ServerShare, 'group' | 'part'>, occupant: Occupant): RoomClaim {
    const { group } = share;
    let room = group === undefined ? undefined : this.#rooms.get(group);
    if (room === undefined) {
      const made = new SharedRoom<ServerClaim>({
        turnMs: turnMsMin,
        recheckMs: 1_000,
        fits,
        settled: () => relieve(made),
      });
      room = made;
      if (group !== undefined) this.#rooms.set(group, room);
    }
    return room.add(new ServerClaim(room, occupant, share));
  }
}

/** Shares are decimal fractions. */
const fits = (claim: ServerClaim, others: readonly ServerClaim[]): boolean =>
  others.reduce((sum, { share }) => sum + share.part, claim.share.part) <= 1 + 1e-9;

/** Idle servers leave where those that are there turn out to hold more than there is. */
function relieve(room: SharedRoom<ServerClaim>): void {
  for (const idle of room.victims().filter(({ occupant }) => occupant.isIdle)) {
    const others = room.resident.filter((each) => each !== idle && each.place.kind === 'in');
    if (others.length === 0 || fits(idle, others)) return;
    room.makeLeave(idle);
  }
}

export const turnMsMin = 10_000;
