import { useEffect, useRef, useState } from 'react';

import { controlClass, Field } from './form.tsx';
import { pauseMs } from './use-paused.ts';

interface SearchFieldProps {
  readonly label: string;
  readonly hint?: string;
  /** What is searched for; undefined: nothing. */
  readonly value: string | undefined;
  readonly onChange: (value: string | undefined) => void;
}

/** Searches while one types, and at once with Enter. */
export function SearchField({ label, hint, value, onChange }: SearchFieldProps) {
  const [typed, setTyped] = useState(value ?? '');
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const said = useRef(value);
  const change = useRef(onChange);
  change.current = onChange;
  // The back button, or a link, says something else.
  useEffect(() => {
    if (value === said.current) return;
    said.current = value;
    setTyped(value ?? '');
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const say = (text: string): void => {
    clearTimeout(timer.current);
    const wanted = text.trim() === '' ? undefined : text.trim();
    if (wanted === said.current) return;
    said.current = wanted;
    change.current(wanted);
  };
  return (
    <Field label={label} {...(hint === undefined ? {} : { hint })}>
      {(control) => (
        <input
          type="search"
          className={controlClass}
          value={typed}
          maxLength={200}
          autoComplete="off"
          spellCheck={false}
          onChange={({ target }) => {
            setTyped(target.value);
            clearTimeout(timer.current);
            timer.current = setTimeout(() => say(target.value), pauseMs);
          }}
          onKeyDown={({ key, currentTarget }) => {
            if (key === 'Enter') say(currentTarget.value);
          }}
          {...control}
        />
      )}
    </Field>
  );
}
