package rscheduler

import "reflect"

func isNil(s Schedule) bool {
	v := reflect.ValueOf(s)
	return s == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
