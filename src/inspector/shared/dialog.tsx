/** A modal dialog: it takes the focus, Escape closes it, and the focus returns. */
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef } from 'preact/hooks'

type DialogProps = {
  readonly title: string
  readonly onClose: () => void
  /** False: nothing works before it is answered, so that Escape does not close it. */
  readonly canClose?: boolean
  readonly children: ComponentChildren
}

export function Dialog({ title, onClose, canClose = true, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const { current } = dialog
    if (current !== null && !current.open) current.showModal()
    return () => current?.close()
  }, [])
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      onCancel={(event) => {
        if (!canClose) event.preventDefault()
      }}
      onClose={onClose}
      onClick={(event) => {
        if (canClose && event.target === event.currentTarget) event.currentTarget.close()
      }}
    >
      <div class="dialog-body">
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  )
}
