// Loaded before the program, in each of its threads: shifts its clock by this many milliseconds, forwards or backwards.
const offsetMs = Number(process.env.DEMO_CLOCK_OFFSET_MS ?? 0);
const RealDate = Date;

globalThis.Date = class extends RealDate {
  constructor(...given) {
    if (given.length === 0) super(RealDate.now() + offsetMs);
    else super(...given);
  }

  static now() {
    return RealDate.now() + offsetMs;
  }
};
