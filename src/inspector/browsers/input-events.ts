/** What a person does over the picture of a page, as commands of the Chrome DevTools Protocol. */

type Modifiers = Pick<MouseEvent, 'altKey' | 'ctrlKey' | 'metaKey' | 'shiftKey'>
type Size = { readonly width: number; readonly height: number }
type Box = Size & { readonly left: number; readonly top: number }

const modifiersOf = ({ altKey, ctrlKey, metaKey, shiftKey }: Modifiers): number =>
  (altKey ? 1 : 0) + (ctrlKey ? 2 : 0) + (metaKey ? 4 : 0) + (shiftKey ? 8 : 0)

type At = Modifiers & Pick<MouseEvent, 'clientX' | 'clientY'>

/** Where in the page, whose picture is shown in a box of any size. */
function placeOf({ clientX, clientY }: At, box: Box, page: Size) {
  return {
    x: Math.round(((clientX - box.left) / box.width) * page.width),
    y: Math.round(((clientY - box.top) / box.height) * page.height),
  }
}

const BUTTONS = ['left', 'middle', 'right'] as const
const TYPES = {
  pointerdown: 'mousePressed',
  pointerup: 'mouseReleased',
  pointermove: 'mouseMoved',
} as const

type Pointer = At & Pick<PointerEvent, 'button' | 'buttons'>

export function mouseCommand(
  type: keyof typeof TYPES,
  event: Pointer,
  clickCount: number,
  [box, page]: readonly [Box, Size],
) {
  const { button, buttons } = event
  const named =
    type === 'pointermove'
      ? buttons === 0
        ? 'none'
        : BUTTONS[buttons & 1 ? 0 : 2]
      : BUTTONS[button]
  return {
    type: TYPES[type],
    ...placeOf(event, box, page),
    button: named ?? 'none',
    buttons,
    clickCount: type === 'pointermove' ? 0 : clickCount,
    modifiers: modifiersOf(event),
  }
}

type Wheel = At & Pick<WheelEvent, 'deltaX' | 'deltaY'>

export function wheelCommand(event: Wheel, [box, page]: readonly [Box, Size]) {
  const { deltaX, deltaY } = event
  const modifiers = modifiersOf(event)
  return { type: 'mouseWheel', ...placeOf(event, box, page), deltaX, deltaY, modifiers }
}

/** Windows' numbers of the keys that write nothing: pages know them by `keyCode`. */
const VIRTUAL_KEYS: Readonly<Record<string, number>> = {
  ...{ Backspace: 8, Tab: 9, Enter: 13, Shift: 16, Control: 17, Alt: 18, CapsLock: 20 },
  ...{ Escape: 27, ' ': 32, PageUp: 33, PageDown: 34, End: 35, Home: 36, ArrowLeft: 37 },
  ...{ ArrowUp: 38, ArrowRight: 39, ArrowDown: 40, Insert: 45, Delete: 46, Meta: 91 },
}

function virtualKeyOf({ key, code }: Pick<KeyboardEvent, 'key' | 'code'>): number {
  const [, letter] = /^(?:Key|Digit)(.)$/.exec(code) ?? []
  if (letter !== undefined) return letter.charCodeAt(0)
  const [, functionKey] = /^F(\d+)$/.exec(key) ?? []
  if (functionKey !== undefined) return 111 + Number(functionKey)
  return VIRTUAL_KEYS[key] ?? 0
}

type Key = Modifiers & Pick<KeyboardEvent, 'type' | 'key' | 'code' | 'location'>

/** Null: it is part of a character that is not there yet. */
export function keyCommand(event: Key) {
  const { type, key, code, location, ctrlKey, metaKey } = event
  if (['Dead', 'Process', 'Unidentified'].includes(key)) return null
  const isShortcut = ctrlKey || metaKey
  const text = key === 'Enter' ? '\r' : key.length === 1 && !isShortcut ? key : ''
  const isDown = type === 'keydown'
  return {
    type: isDown ? (text === '' ? 'rawKeyDown' : 'keyDown') : 'keyUp',
    key,
    code,
    location,
    windowsVirtualKeyCode: virtualKeyOf(event),
    modifiers: modifiersOf(event),
    ...(isDown && text !== '' ? { text } : {}),
  }
}
