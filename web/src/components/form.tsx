/**
 * Forms. The browser checks what it can (`required`, `type`, `min`), the server the rest: an error whose `param` is the name of a
 * field appears at this field, any other above the buttons.
 */
import { createContext, use, useEffect, useId, useRef, useState } from 'react';
import type { FormEvent, InputHTMLAttributes, ReactNode, SelectHTMLAttributes, TextareaHTMLAttributes } from 'react';

import type { AppTexts } from '../app/messages/en.ts';
import { ApiFailure } from '../api/client.ts';
import { useText } from '../i18n/text.ts';
import { classes } from './classes.ts';
import { ErrorNote } from './state.tsx';
import styles from './form.module.css';

interface FieldFaults {
  readonly error: ApiFailure | undefined;
  /** A field says that it shows errors of this name. */
  register(name: string): () => void;
}

const FormFaults = createContext<FieldFaults>({ error: undefined, register: () => () => {} });

interface FormProps {
  /** Of the last attempt: from `useSend`. */
  readonly error?: unknown;
  readonly onSubmit: (form: FormData) => void;
  readonly children: ReactNode;
  readonly label?: string;
}

export function Form({ error, onSubmit, children, label }: FormProps) {
  const form = useRef<HTMLFormElement>(null);
  const names = useRef(new Map<string, number>());
  const [, renew] = useState(0);
  const failure = error instanceof ApiFailure ? error : undefined;
  const register = useRef((name: string) => {
    names.current.set(name, (names.current.get(name) ?? 0) + 1);
    renew((count) => count + 1);
    return () => {
      const left = (names.current.get(name) ?? 1) - 1;
      if (left === 0) names.current.delete(name);
      else names.current.set(name, left);
    };
  }).current;
  const isAtField = failure?.param !== undefined && names.current.has(topOf(failure.param));
  useEffect(() => {
    if (failure === undefined) return;
    form.current?.querySelector<HTMLElement>('[aria-invalid=true]')?.focus();
  }, [failure]);
  const submit = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault();
    // A form in a dialog is inside the form of its page for React, not for the browser.
    event.stopPropagation();
    onSubmit(new FormData(event.currentTarget));
  };
  return (
    <FormFaults value={{ error: failure, register }}>
      <form ref={form} className={styles['form']} onSubmit={submit} aria-label={label}>
        {error !== undefined && error !== null && !isAtField && <ErrorNote error={error} />}
        {children}
      </form>
    </FormFaults>
  );
}

/** `ip_ranges[0]` and `billing.name` are errors of the fields `ip_ranges` and `billing`. */
const topOf = (param: string): string => param.split(/[.[]/)[0]!;

interface FieldOwn {
  readonly label: ReactNode;
  readonly hint?: ReactNode;
  /** Says "optional" after the label. */
  readonly optional?: boolean;
  /** The field of the request that it is: errors of the server with this `param` are shown here. */
  readonly name?: string;
  /** Of our own checks. */
  readonly error?: string | undefined;
}

interface Described {
  readonly id: string;
  readonly 'aria-describedby': string | undefined;
  readonly 'aria-invalid': boolean | undefined;
}

/** A label, a control, a hint and an error, tied together. */
export function Field({
  label,
  hint,
  optional,
  name,
  error,
  children,
}: FieldOwn & { readonly children: (control: Described) => ReactNode }) {
  const t = useText<AppTexts>('app');
  const id = useId();
  const fault = useFault(name) ?? error;
  return (
    <div className={styles['field']}>
      <label className={styles['label']} htmlFor={id}>
        {label}
        {optional === true && <span className={styles['optional']}> {t('optional')}</span>}
      </label>
      {children({
        id,
        'aria-invalid': fault === undefined ? undefined : true,
        'aria-describedby':
          classes(hint !== undefined && `${id}-hint`, fault !== undefined && `${id}-error`) || undefined,
      })}
      {hint !== undefined && (
        <div id={`${id}-hint`} className={styles['hint']}>
          {hint}
        </div>
      )}
      {fault !== undefined && (
        <div id={`${id}-error`} className={styles['error']}>
          {fault}
        </div>
      )}
    </div>
  );
}

/** What the server said of a field. */
function useFault(name: string | undefined): string | undefined {
  const { error, register } = use(FormFaults);
  useEffect(() => (name === undefined ? undefined : register(name)), [name, register]);
  return name !== undefined && error?.param !== undefined && topOf(error.param) === name ? error.message : undefined;
}

/** What `centsOf` reads. */
const moneyInput = {
  inputMode: 'decimal',
  autoComplete: 'off',
  pattern: String.raw`\$?\s*\d{1,8}([.,]\d{1,2})?`,
} as const;

type TextFieldProps = FieldOwn &
  Omit<InputHTMLAttributes<HTMLInputElement>, 'name' | 'id'> & { readonly isMoney?: boolean };

export function TextField({ label, hint, optional, error, name, isMoney, className, ...input }: TextFieldProps) {
  return (
    <Field {...own({ label, hint, optional, error, name })}>
      {(control) => {
        const element = (
          <input
            className={classes(styles['input'], className)}
            name={name}
            required={optional !== true}
            {...(isMoney === true ? moneyInput : {})}
            {...control}
            {...input}
          />
        );
        return isMoney === true ? <div className={styles['money']}>{element}</div> : element;
      }}
    </Field>
  );
}

type TextAreaProps = FieldOwn & Omit<TextareaHTMLAttributes<HTMLTextAreaElement>, 'name' | 'id'>;

export function TextArea({ label, hint, optional, error, name, rows = 3, ...input }: TextAreaProps) {
  return (
    <Field {...own({ label, hint, optional, error, name })}>
      {(control) => (
        <textarea
          className={styles['input']}
          name={name}
          rows={rows}
          required={optional !== true}
          {...control}
          {...input}
        />
      )}
    </Field>
  );
}

type SelectProps = FieldOwn &
  Omit<SelectHTMLAttributes<HTMLSelectElement>, 'name' | 'id'> & {
    readonly options: readonly { readonly value: string; readonly text: string; readonly disabled?: boolean }[];
  };

/** The browser's own list: right on a phone, for the keyboard, and for readers of the screen. */
export function Select({ label, hint, optional, error, name, options, ...input }: SelectProps) {
  return (
    <Field {...own({ label, hint, optional, error, name })}>
      {(control) => (
        <select className={styles['input']} name={name} {...control} {...input}>
          {options.map(({ value, text, disabled }) => (
            <option key={value} value={value} disabled={disabled}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

type CheckboxProps = Omit<FieldOwn, 'optional'> & Omit<InputHTMLAttributes<HTMLInputElement>, 'name' | 'id' | 'type'>;

export function Checkbox({ label, hint, error, name, ...input }: CheckboxProps) {
  const id = useId();
  const fault = useFault(name) ?? error;
  return (
    <div className={styles['check']}>
      <input
        type="checkbox"
        id={id}
        name={name}
        aria-describedby={hint === undefined ? undefined : `${id}-hint`}
        aria-invalid={fault === undefined ? undefined : true}
        {...input}
      />
      <label htmlFor={id}>{label}</label>
      {hint !== undefined && (
        <div id={`${id}-hint`} className={styles['hint']}>
          {hint}
        </div>
      )}
      {fault !== undefined && <div className={styles['error']}>{fault}</div>}
    </div>
  );
}

/** Without the entries that are undefined: the types keep both apart. */
const own = ({
  label,
  hint,
  optional,
  error,
  name,
}: { [Key in keyof FieldOwn]: FieldOwn[Key] | undefined }): FieldOwn => ({
  label,
  ...(hint === undefined ? {} : { hint }),
  ...(optional === undefined ? {} : { optional }),
  ...(error === undefined ? {} : { error }),
  ...(name === undefined ? {} : { name }),
});

/** Fields beside each other where there is room. */
export const FieldRow = ({ children }: { readonly children: ReactNode }) => (
  <div className={styles['row']}>{children}</div>
);
/** What narrows the list below; `/` goes there. */
export const FilterRow = ({ children }: { readonly children: ReactNode }) => (
  <div className={styles['filters']} data-filter="">
    {children}
  </div>
);
/** At the end of a form; the primary one last. */
export const FormButtons = ({ children }: { readonly children: ReactNode }) => (
  <div className={styles['buttons']}>{children}</div>
);

/** Fields that few need. */
export function MoreFields({
  summary,
  children,
  open,
  onOpen,
}: {
  readonly summary: string;
  readonly children: ReactNode;
  readonly open?: boolean;
  readonly onOpen?: () => void;
}) {
  return (
    <details className={styles['more']} open={open} onToggle={({ currentTarget }) => currentTarget.open && onOpen?.()}>
      <summary>{summary}</summary>
      <div className={styles['form']}>{children}</div>
    </details>
  );
}

/** The class of a control that has no `Field` around it: filters. */
export const controlClass = styles['input']!;
