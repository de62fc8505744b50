/** One of many, with how often each occurs: a field that one types into, and a list below it. */
import { useEffect, useId, useState } from 'react';
import type { KeyboardEvent } from 'react';

import { formatNumber } from '../../format/number.ts';
import { useLanguage } from '../../i18n/text.ts';
import { classes } from '../../components/classes.ts';
import { controlClass, Field } from '../../components/form.tsx';
import { ChevronIcon } from '../../components/icons.tsx';
import styles from './picker.module.css';

export interface PickerOption {
  readonly value: string;
  readonly text: string;
  /** Left out: not known. */
  readonly count?: number | undefined;
}

interface PickerProps {
  readonly label: string;
  /** What stands for no choice. */
  readonly all: string;
  /** undefined: all of them. */
  readonly value: string | undefined;
  readonly options: readonly PickerOption[];
  readonly onChange: (value: string | undefined) => void;
  /** What the list needs is asked for when it is opened. */
  readonly onOpen?: () => void;
  /** `fixed`: nothing can be typed. `free`: what is typed need not be in the list. */
  readonly kind?: 'fixed' | 'free';
}

/** As many as one looks through; the others are found by typing. */
const shownMax = 100;

/** The pattern `combobox` of the ARIA practices: the focus stays in the field, and arrows, Enter and Escape are for the list. */
export function Picker({ label, all, value, options, onChange, onOpen, kind }: PickerProps) {
  useLanguage();
  const id = useId();
  const [isOpen, setOpen] = useState(false);
  /** undefined: nothing was typed since it was opened. */
  const [typed, setTyped] = useState<string>();
  /** Of the one that is meant by Enter, also when counts come and the list has another order. */
  const [current, setCurrent] = useState<{ readonly value: string | undefined }>();
  const chosen = options.find((one) => one.value === value);
  const wanted = typed?.trim().toLowerCase() ?? '';
  const matching = options.filter(({ text }) => text.toLowerCase().includes(wanted));
  const shown: readonly (PickerOption | undefined)[] = [
    ...(wanted === '' ? [undefined] : []),
    ...matching.slice(0, shownMax),
  ];
  const at = current === undefined ? -1 : shown.findIndex((one) => one?.value === current.value);
  const setAt = (index: number): void => setCurrent(index < 0 ? undefined : { value: shown[index]?.value });
  const isListed = isOpen && shown.length > 0;
  useEffect(() => {
    if (isOpen) document.getElementById(`${id}-${at}`)?.scrollIntoView({ block: 'nearest' });
  }, [id, isOpen, at]);
  const open = (): void => {
    if (isOpen) return;
    onOpen?.();
    setOpen(true);
    setAt(shown.indexOf(chosen));
  };
  const close = (): void => {
    setOpen(false);
    setTyped(undefined);
    setAt(-1);
  };
  const choose = (next: string | undefined): void => {
    close();
    if (next !== value) onChange(next);
  };
  /** What the text in the field means; false: nothing. */
  const meant = (): string | undefined | false => {
    if (wanted === '') return undefined;
    const exact = options.find((one) => one.text.toLowerCase() === wanted || one.value === typed?.trim());
    return exact?.value ?? (kind === 'free' && typed!.trim());
  };
  const pick = (): void => {
    if (at >= 0) return choose(shown[at]?.value);
    if (typed === undefined) return close();
    const next = meant();
    const isKnown = next === undefined || options.some((one) => one.value === next);
    const found = isKnown ? next : (matching[0]?.value ?? next);
    if (found !== false) choose(found);
  };
  const onKeyDown = (event: KeyboardEvent<HTMLInputElement>): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      if (isOpen) setAt(Math.min(shown.length - 1, Math.max(0, at + step)));
      else open();
    } else if (event.key === 'Escape' && isOpen) {
      // The dialog around it stays.
      event.preventDefault();
      event.stopPropagation();
      close();
    } else if (event.key === 'Enter') {
      if (!isOpen) return open();
      event.preventDefault();
      pick();
    } else if (kind === 'fixed' && event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const from = [...shown.keys()].map((index) => (index + at + 1) % shown.length);
      const next = from.find((index) => textOf(shown[index]).toLowerCase().startsWith(event.key.toLowerCase()));
      open();
      if (next !== undefined) setAt(next);
    }
  };
  const textOf = (one: PickerOption | undefined): string => one?.text ?? all;
  return (
    <Field label={label}>
      {(control) => (
        <div className={styles['picker']}>
          <div className={styles['box']}>
            <input
              className={classes(controlClass, styles['field'])}
              {...control}
              role="combobox"
              aria-expanded={isListed}
              aria-controls={isListed ? `${id}-list` : undefined}
              aria-activedescendant={isOpen && at >= 0 ? `${id}-${at}` : undefined}
              aria-autocomplete={kind === 'fixed' ? 'none' : 'list'}
              readOnly={kind === 'fixed'}
              maxLength={128}
              autoComplete="off"
              spellCheck={false}
              placeholder={all}
              value={typed ?? chosen?.text ?? value ?? ''}
              title={chosen?.text ?? value}
              onClick={() => (isOpen && kind === 'fixed' ? close() : open())}
              onFocus={(event) => event.target.select()}
              onChange={(event) => {
                open();
                setTyped(event.target.value);
                setAt(-1);
              }}
              onKeyDown={onKeyDown}
              onBlur={() => {
                const next = typed === undefined ? false : meant();
                if (next === false) close();
                else choose(next);
              }}
            />
            <ChevronIcon />
          </div>
          {isListed && (
            <div id={`${id}-list`} role="listbox" aria-label={label} className={styles['list']}>
              {shown.map((one, index) => (
                // The keyboard is at the field, which says which one is meant.
                <div
                  key={one?.value ?? ''}
                  id={`${id}-${index}`}
                  role="option"
                  data-value={one?.value ?? ''}
                  aria-selected={one?.value === value}
                  className={classes(styles['option'], index === at && styles['current'])}
                  onMouseDown={(event) => event.preventDefault()}
                  onPointerMove={() => setAt(index)}
                  onClick={() => choose(one?.value)}
                >
                  <bdi>{textOf(one)}</bdi>
                  {one?.count !== undefined && <small>{formatNumber(one.count)}</small>}
                </div>
              ))}
            </div>
          )}
        </div>
      )}
    </Field>
  );
}
