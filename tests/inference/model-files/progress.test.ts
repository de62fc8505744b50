import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { Meter, type FetchProgress } from '../../../src/inference/model-files/meter.ts';
import { progressDisplay } from '../../../src/inference/model-files/progress.ts';

describe('a meter', () => {
  it('gives bytes that never go back, at most ten reports a second, and the last one', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(1200), fc.nat(400))), (steps) => {
        let now = 0;
        const reports: FetchProgress[] = [];
        const meter = new Meter(
          'x',
          (progress) => reports.push(progress),
          () => now,
        );
        meter.begin('downloading', 1000);
        for (const [bytes, elapsed] of steps) {
          now += elapsed;
          meter.report(bytes);
        }
        now += 50;
        meter.report(1000);
        assert.equal(reports.at(-1)?.bytes, 1000);
        assert.equal(reports.at(-1)?.secondsLeft ?? 0, 0);
        assert.ok(reports.length <= now / 100 + 2);
        for (const [index, { bytes, bytesPerSecond }] of reports.entries()) {
          assert.ok(bytes >= (reports[index - 1]?.bytes ?? 0) && bytes <= 1000 && bytesPerSecond >= 0);
        }
      }),
    );
  });

  it('measures the rate over the last seconds and says what is left', () => {
    let now = 0;
    const reports: FetchProgress[] = [];
    const meter = new Meter(
      'x',
      (progress) => reports.push(progress),
      () => now,
    );
    meter.begin('downloading', 100_000, 40_000, true);
    for (let bytes = 41_000; bytes <= 60_000; bytes += 1000) {
      now += 500;
      meter.report(bytes);
    }
    assert.deepEqual(
      [reports.at(-1)?.bytesPerSecond, reports.at(-1)?.secondsLeft, reports.at(-1)?.resumed],
      [2000, 20, true],
    );
  });
});

describe('the display', () => {
  const at = (bytes: number, changes: Partial<FetchProgress> = {}): FetchProgress => ({
    activity: 'downloading',
    source: 'https://host/small.gguf',
    bytes,
    total: 98_400_000,
    bytesPerSecond: 5_000_000,
    secondsLeft: Math.ceil((98_400_000 - bytes) / 5_000_000),
    resumed: false,
    ...changes,
  });

  function display(isTTY: boolean, columns = 200) {
    let now = 0;
    let text = '';
    const { show, hide, end } = progressDisplay({ isTTY, columns, write: (piece) => (text += piece) }, () => now);
    return { show, hide, end, wait: (ms: number) => (now += ms), text: () => text };
  }

  it('redraws one line on a terminal, with a bar, bytes, rate and time left', () => {
    const { show, end, text } = display(true);
    show(at(0, { bytesPerSecond: 0 }));
    show(at(49_200_000));
    show(at(98_400_000, { secondsLeft: 0 }));
    end();
    const frames = text().split('\r').slice(1);
    assert.equal(frames.length, 3);
    assert.equal(
      frames[1],
      `model    ▕${'█'.repeat(10)}${' '.repeat(10)}▏ 49.2/98.4 MB 5.0 MB/s 10 s left  fetching https://host/small.gguf\x1b[K`,
    );
    assert.match(frames[2]!, /▕█{20}▏ 98\.4\/98\.4 MB 5\.0 MB\/s {2}fetching/);
    assert.equal(text().split('\n').length, 2, 'one line end, after the last frame');
  });

  it('makes room for other lines, and is drawn again below them', () => {
    const { show, hide, end, text } = display(true);
    show(at(49_200_000));
    hide();
    hide();
    assert.equal(text().split('\r').at(-1), '\x1b[K', 'the line is empty');
    show(at(60_000_000));
    end();
    assert.match(text(), /60\.0\/98\.4 MB[^\n]*\n$/);
    assert.equal(text().split('\n').length, 2);
  });

  it('never writes a line that a terminal would wrap', () => {
    for (const columns of [1, 10, 40, 80]) {
      const { show, text } = display(true, columns);
      show(at(49_200_000));
      assert.ok([...text().replace(/\r|\x1b\[K/g, '')].length < Math.max(columns, 3), String(columns));
    }
  });

  it('writes a line every ten seconds where there is no terminal', () => {
    const { show, end, wait, text } = display(false);
    for (let second = 0; second <= 25; second++) {
      show(at(second * 1_000_000));
      wait(1000);
    }
    end();
    assert.deepEqual(
      text()
        .trimEnd()
        .split('\n')
        .map((line) => /[\d.]+(?=\/98)/.exec(line)?.[0]),
      ['0.0', '10.0', '20.0', '25.0'],
    );
    assert.doesNotMatch(text(), /\r|\x1b/);
  });

  it('says that it goes on, and begins a new line for a new source', () => {
    const { show, end, text } = display(false);
    show(at(50_000_000, { resumed: true }));
    show(at(0, { source: 'pypi:x==1' }));
    end();
    const lines = text().trimEnd().split('\n');
    assert.equal(lines.length, 2);
    assert.match(lines[0]!, /\(resumed\) {2}fetching https:/);
    assert.match(lines[1]!, /fetching pypi:x==1/);
  });

  it('is silent about checks that take no time', () => {
    const { show, end, text } = display(true);
    show(at(0, { activity: 'checking' }));
    end();
    assert.equal(text(), '');
  });
});
